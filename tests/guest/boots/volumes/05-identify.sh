# What an administrator looks at.
connect -i 1
disk=$(volume 1)
nvme id-ctrl "$CTRL" -o json >/tmp/ctrl
same "subsystem NQN in Identify Controller" "$NQN" "$(json /tmp/ctrl subnqn)"
[ "$(json /tmp/ctrl sqes)" = 102 ] || fail "submission entries are not 64 bytes"
[ "$(json /tmp/ctrl kas)" -gt 0 ] || fail "no keep alive"
nvme id-ns "$CTRL" -n 1 -o json >/tmp/ns
blocks=$(json /tmp/ns nsze)
same "Identify Namespace and the block layer agree on the size" "$((blocks * 512))" \
    "$(blockdev --getsize64 "$disk")"
same "logical block size" 512 "$(blockdev --getss "$disk")"
same "logical block size of the other format" 4096 "$(blockdev --getss "$(volume 2)")"
nvme ns-descs "$CTRL" -n 1 >/tmp/descs
grep -qE 'nguid|uuid|eui64' /tmp/descs || fail "namespace 1 has no identifier"
expect "list" nvme list
nvme list-ns "$CTRL" >/tmp/list
same "the active namespaces" "$(cat /sys/block/nvme*n*/nsid | sort -u | wc -l)" "$(grep -c : /tmp/list)"
for register in 0x0 0x8 0x14 0x1c; do
    expect "controller property $register" nvme get-property "$CTRL" --offset=$register
done
for log in smart-log error-log fw-log effects-log changed-ns-list-log; do
    expect "$log" nvme "$log" "$CTRL"
done
for feature in 0x07 0x0b 0x0f; do
    expect "feature $feature" nvme get-feature "$CTRL" -f "$feature"
done

# The host authenticates in its channel.
PORT=$BOTH_PORT
insert_key 1 "$BOTH_NQN" "$BOTH_KEY"
connect --hostnqn "$BOTH_NQN" --hostid "$BOTH_ID" --tls --dhchap-secret "$BOTH_SECRET" -i 1
disk=$(volume 1)
pattern both 2 >/tmp/wrote
expect "2 MiB written" dd if=/tmp/wrote of="$disk" bs=64k oflag=direct
dd if="$disk" of=/tmp/read bs=64k count=32 iflag=direct 2>/dev/null
expect "and read back equal" cmp /tmp/wrote /tmp/read
disconnect
refuse "not without its other key" "failed\|could not\|missing\|required\|denied\|error" \
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" --hostnqn "$BOTH_NQN" --hostid "$BOTH_ID" --tls

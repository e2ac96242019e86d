# The kernel's target with keys of hosts: each hash function and group, one and two ways.
cd /sys/kernel/config/nvmet
mkdir "hosts/$HOSTNQN"
echo 0 >"subsystems/$NQN/attr_allow_any_host"
ln -s "/sys/kernel/config/nvmet/hosts/$HOSTNQN" "subsystems/$NQN/allowed_hosts/$HOSTNQN"
echo "$KEY" >"hosts/$HOSTNQN/dhchap_key"
pairs=$(for group in 2048 3072 4096 6144 8192; do
    for hash in sha256 sha384 sha512; do echo "$hash:ffdhe$group"; done
done)
for pair in $pairs; do
    echo "hmac(${pair%:*})" >"hosts/$HOSTNQN/dhchap_hash"
    echo "${pair#*:}" >"hosts/$HOSTNQN/dhchap_dhgroup"
    host connects one
    echo "  so: $pair, one way"
done
host does-not wrong fit
host does-not none does_not_let_this_host_in
host does-not two key
echo "$SERVER_KEY" >"hosts/$HOSTNQN/dhchap_ctrl_key"
for pair in $pairs; do
    echo "hmac(${pair%:*})" >"hosts/$HOSTNQN/dhchap_hash"
    echo "${pair#*:}" >"hosts/$HOSTNQN/dhchap_dhgroup"
    host connects two
    echo "  so: $pair, both ways"
done
echo null >"hosts/$HOSTNQN/dhchap_dhgroup"
host does-not one authentication_failed

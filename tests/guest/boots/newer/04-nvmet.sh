# The kernel's target: Diskside's host comes over TLS with a key of it, and with one that authenticating makes.
modprobe -a nvmet-tcp
modprobe brd rd_nr=1 rd_size=$((VOLUME_MIB * 1024))
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir "subsystems/$NQN-kernel" "subsystems/$NQN-kernel/namespaces/1" "hosts/$HOSTNQN" ports/1
echo 0 >"subsystems/$NQN-kernel/attr_allow_any_host"
ln -s "/sys/kernel/config/nvmet/hosts/$HOSTNQN" "subsystems/$NQN-kernel/allowed_hosts/$HOSTNQN"
echo -n /dev/ram0 >"subsystems/$NQN-kernel/namespaces/1/device_path"
echo 1 >"subsystems/$NQN-kernel/namespaces/1/enable"
for pair in "adrfam ipv4" "trtype tcp" "traddr 0.0.0.0" "trsvcid 4420" "tsas tls1.3" "treq not required"; do
    echo "${pair#* }" >"ports/1/addr_${pair%% *}"
done
ln -s "/sys/kernel/config/nvmet/subsystems/$NQN-kernel" "ports/1/subsystems/$NQN-kernel"
keyctl clear %:.nvme 2>/dev/null || true
(
    NQN=$NQN-kernel
    insert_key 1 "$HOSTNQN" "$(host tls-key)"
)
host connects nvme-tcp+tls tls
echo "  so: over TLS"
keyctl clear %:.nvme 2>/dev/null || true
(
    NQN=$NQN-kernel
    insert_key 1 "$HOSTNQN" "$LONG_KEY"
)
host connects nvme-tcp+tls long
echo "  so: over TLS with a key of 48 bytes"
host does-not nvme-tcp+tls tls the_server
echo "  so: and not with another key"
echo "$KEY" >"hosts/$HOSTNQN/dhchap_key"
echo "$SERVER_KEY" >"hosts/$HOSTNQN/dhchap_ctrl_key"
# Nor does 7.2 make a channel for a host that asks for proof while it authenticates for one: the page on security says so.
for pair in "sha256 ffdhe2048" "sha384 ffdhe4096"; do
    echo "hmac(${pair% *})" >"hosts/$HOSTNQN/dhchap_hash"
    echo "${pair#* }" >"hosts/$HOSTNQN/dhchap_dhgroup"
    host does-not nvme-tcp+tls both the_server_closed_the_connection_while_the_secure_channel_was_made
    echo "  so: $pair, both ways, and no key of TLS is made by it"
done
# In the clear the kernel does not ask I/O queues at such a port who they are, which our host does not put up with.
host does-not nvme-tcp both not_ask_for_authentication

# The kernel's target makes its channels with a key of Debian 13's tools.
cd /sys/kernel/config/nvmet
rm "ports/1/subsystems/$NQN"
echo "tls1.3" >ports/1/addr_tsas
echo required >ports/1/addr_treq
ln -s "/sys/kernel/config/nvmet/subsystems/$NQN" "ports/1/subsystems/$NQN"
for identity in 1 0; do
    # One of them at a time, and the key that Debian 13's tools derive.
    keyctl clear %:.nvme 2>/dev/null || true
    insert_key $identity "$HOSTNQN" "$KEY"
    host connects
    echo "  so: it connects by version $identity of identities"
done
host does-not

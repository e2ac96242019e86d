# Keys of both lengths, which have different cipher suites, and both versions of identities.
for which in SHORT LONG; do
    eval "nqn=\$${which}_NQN key=\$${which}_KEY"
    for identity in 1 0; do
        keyctl clear %:.nvme 2>/dev/null || true
        insert_key $identity "$nqn" "$key"
        connect --hostnqn "$nqn" --hostid "${nqn##*uuid:}" --tls -i 1
        expect "$which key, version $identity of identities" dd if="$(volume 1)" of=/dev/null bs=64k count=8 iflag=direct
        disconnect
    done
done

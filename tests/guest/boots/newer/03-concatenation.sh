# The host has no key of TLS: authenticating makes one, and all queues come over TLS.
id=${HOSTNQN##*uuid:}
over_tls() {
    same "over TLS" 1 "$(grep -c . "/sys/class/nvme/${CTRL##*/}/tls_key")"
}
for port in "$PORT" "$STRICT_PORT"; do
    PORT=$port
    for secrets in "--dhchap-secret $KEY" "--dhchap-secret $KEY --dhchap-ctrl-secret $SERVER_KEY"; do
        connect --hostnqn "$HOSTNQN" --hostid "$id" $secrets --concat -i 2
        over_tls
        disk=$(volume 1)
        pattern concat 4 >/tmp/wrote
        expect "4 MiB written" dd if=/tmp/wrote of="$disk" bs=64k oflag=direct
        dd if="$disk" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
        expect "and read back equal" cmp /tmp/wrote /tmp/read
        disconnect
    done
done
# A reset makes another key, and what is written meanwhile is there.
connect --hostnqn "$HOSTNQN" --hostid "$id" --dhchap-secret "$KEY" --concat -i 1
disk=$(volume 1)
before=$(cat "/sys/class/nvme/${CTRL##*/}/tls_key")
dd if=/tmp/wrote of="$disk" bs=64k oflag=direct 2>/dev/null &
expect "it is reset" nvme reset "$CTRL"
wait
over_tls
[ "$before" != "$(cat "/sys/class/nvme/${CTRL##*/}/tls_key")" ] || fail "the key is still the same"
dd if="$disk" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
expect "what was written meanwhile is there" cmp /tmp/wrote /tmp/read
disconnect
refuse "in the clear, where TLS is required" "failed\|could not\|error\|denied\|not supported" \
    nvme connect -t tcp -a "$ADDR" -s "$STRICT_PORT" -n "$NQN" --hostnqn "$HOSTNQN" --hostid "$id" --dhchap-secret "$KEY"

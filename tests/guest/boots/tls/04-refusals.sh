# What does not get in.
try() {
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@"
}
refuse "no TLS" "failed\|could not\|error" try --hostnqn "$NEW_NQN" --hostid "$NEW_ID"
insert_key 1 "$STRANGER_NQN" "$STRANGER_KEY"
refuse "a host that is not known" "failed\|could not\|error\|rejected\|denied" \
    try --hostnqn "$STRANGER_NQN" --hostid "$STRANGER_ID" --tls
# The first version of identities does not say which key it is.
insert_key 0 "$LONG_NQN" "$STRANGER_KEY"
refuse "another key" "failed\|could not\|error\|rejected\|denied" \
    try --hostnqn "$LONG_NQN" --hostid "$LONG_ID" --tls
[ ! -e /sys/class/nvme/nvme0 ] || fail "a controller is left"
echo "  so: nothing is left"

# What does not get in.
try() {
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" --hostid "$HOSTID" "$@"
}
refuse "another key" "failed\|could not\|rejected\|refused" try --hostnqn "$HOSTNQN" --dhchap-secret "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
refuse "no key" "failed\|could not\|missing\|required" try --hostnqn "$HOSTNQN"
refuse "another name" "failed\|could not\|invalid\|not allowed" try --hostnqn "$HOSTNQN-other" --dhchap-secret "$KEY"
refuse "a server without the key that is meant" "failed\|could not\|rejected\|refused" \
    try --hostnqn "$HOSTNQN" --dhchap-secret "$KEY" --dhchap-ctrl-secret "$KEY"
[ ! -e /sys/class/nvme/nvme0 ] || fail "a controller is left"
echo "  so: nothing is left"

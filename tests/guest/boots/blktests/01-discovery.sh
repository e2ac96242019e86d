# blktests 002, 003, 016, 017, 030: a long discovery log, its generation, and a host that stays connected to it.
found() {
    nvme discover -t tcp -a "$ADDR" -s "$PORT" >/tmp/found || fail "nvme discover"
}
records() {
    grep -c "^subnqn: *$NQN" /tmp/found || true
}
generation() {
    sed -n 's/.*Generation counter \([0-9]*\).*/\1/p' /tmp/found
}
# grown HOW: the generation is one more than before.
grown() {
    found
    same "$1 is a generation of the log" $((before + 1)) "$(generation)"
    before=$(generation)
}
found
same "a record for each address" "$ADVERTISED" "$(records)"
same "and no address twice" "$ADVERTISED" "$(grep -c trsvcid: /tmp/found)"
before=$(generation)
host serve-many >/dev/null
found
same "volumes are not in the log, however many" "$ADVERTISED" "$(records)"
same "so its generation is as before" "$before" "$(generation)"
host serve data >/dev/null

nvme connect -t tcp -a "$ADDR" -s "$PORT" -n nqn.2014-08.org.nvmexpress.discovery --keep-alive-tmo=1 ||
    fail "no connection to the discovery controller"
discovery=$(grep -l discovery /sys/class/nvme/nvme*/subsysnqn)
host let-in nqn.2026-11.org.diskside:another >/dev/null
grown "that this host may connect no longer"
same "which then sees nothing" 0 "$(records)"
host let-in >/dev/null
grown "that it may again"
same "which then sees all" "$ADVERTISED" "$(records)"
# Longer than the server waits for a keep alive.
sleep 4
same "a connection to discovery is kept alive" live "$(cat "${discovery%/subsysnqn}/state")"
if dmesg | grep -i 'keep.alive.*err'; then fail "a keep alive was not answered"; fi
expect "and ended" nvme disconnect -n nqn.2014-08.org.nvmexpress.discovery

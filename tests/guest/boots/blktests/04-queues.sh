# blktests 048: the server is started again with other limits, and the host connects again with as many queues as there are now.
connect -i 2 --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5
control=/sys/class/nvme/${CTRL##*/}
disk=$(volume 1)
same "an admin queue, and two" 3 "$(cat "$control/queue_count")"
pattern queues 1 >/tmp/wrote
dd if=/tmp/wrote of="$disk" bs=64k oflag=direct 2>/dev/null
for queues in 1 2; do
    host queues $queues
    waited=0
    # It waits until there is a connection again.
    dd if="$disk" of=/tmp/read bs=64k count=16 iflag=direct 2>/dev/null || fail "no read after the server came back"
    cmp -s /tmp/wrote /tmp/read || fail "other bytes"
    while [ "$(cat "$control/state")" != live ]; do
        waited=$((waited + 1))
        [ $waited -lt 60 ] || fail "the controller is $(cat "$control/state")"
        sleep 0.5
    done
    same "with a limit of $queues" $((queues + 1)) "$(cat "$control/queue_count")"
    dd if=/tmp/wrote of="$disk" bs=64k oflag=direct 2>/dev/null || fail "no write over $queues"
done

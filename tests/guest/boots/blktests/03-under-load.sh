# blktests 031, 040, 053: controllers that are deleted at once, and resets, rescans and a deletion under load.
round=0
while [ $round -lt 5 ]; do
    round=$((round + 1))
    connect -i 2
    disconnect
done
[ ! -e /sys/class/nvme/nvme0 ] || fail "a controller is left"
echo "  so: five controllers were deleted as soon as they were there"

connect -i 2
disk=$(volume 1)
control=/sys/class/nvme/${CTRL##*/}
load_in_rounds "$disk" --size=512k --bs=4k --iodepth=8 &
running=$!
round=0
while [ $round -lt 12 ]; do
    round=$((round + 1))
    echo 1 >"$control/rescan_controller"
    if [ $((round % 4)) = 0 ]; then
        expect "reset $((round / 4))" nvme reset "$CTRL"
        same "it is live again" live "$(cat "$control/state")"
    fi
    sleep 0.3
done
touch /tmp/stop
wait $running || { cat /tmp/fio; fail "I/O did not survive rescans and resets"; }
rm /tmp/stop
echo "  so: I/O survived all of it, and all blocks were verified $(cat /tmp/rounds) times"

load_in_rounds "$disk" --size=8m --bs=4k --iodepth=8 &
running=$!
sleep 2
began=$(cut -d. -f1 /proc/uptime)
expect "a controller is deleted under load" nvme disconnect -n "$NQN"
if wait $running; then fail "fio ended well without its disk"; fi
took=$(($(cut -d. -f1 /proc/uptime) - began))
[ $took -lt 20 ] || fail "its I/O ended only after $took s"
echo "  so: its I/O ended with an error"
connect -i 2
expect "and another one reads" dd if="$(volume 1)" of=/dev/null bs=64k count=16 iflag=direct

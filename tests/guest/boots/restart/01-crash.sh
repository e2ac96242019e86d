# Killed three times and stopped once, while one writer counts and fio keeps the queues full. A
# number is acknowledged when its flush is.
connect -i 2 --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5
disk=$(volume 1)

count() {
    n=0
    while [ ! -e /tmp/stop ]; do
        printf 'number %08d.' $n | dd of="$disk" bs=4096 seek=$n conv=sync,notrunc,fsync 2>/tmp/dd ||
            { cat /tmp/dd; return 1; }
        echo $n >/tmp/acknowledged.new
        mv /tmp/acknowledged.new /tmp/acknowledged
        n=$((n + 1))
    done
}
count &
counter=$!
load_in_rounds "$disk" --offset=32m --size=512k --bs=4k --iodepth=16 &
load=$!

sleep 2
for pause in 0 1 3; do
    before=$(cat /tmp/acknowledged)
    host crash $pause
    waited=0
    while [ "$(cat /tmp/acknowledged)" -le $((before + 1)) ]; do
        sleep 0.5
        waited=$((waited + 1))
        [ $waited -lt 120 ] || fail "no write was acknowledged for 60 s after the crash"
    done
    echo "  so: writes go on after a crash of $pause s, $before were acknowledged before it"
done
host restart
sleep 2
touch /tmp/stop
wait $counter || fail "the counting writer saw an error"
wait $load || { cat /tmp/fio; fail "fio saw an error or a wrong block"; }
echo "  so: no process saw an error, and all blocks were verified $(cat /tmp/rounds) times"

last=$(cat /tmp/acknowledged)
disconnect
connect -i 1
dd if="$(volume 1)" bs=4096 count=$((last + 1)) iflag=direct 2>/dev/null | tr -d '\0' >/tmp/got
n=0
while [ $n -le "$last" ]; do
    printf 'number %08d.' $n
    n=$((n + 1))
done >/tmp/wanted
expect "all $((last + 1)) acknowledged numbers are there, each in its place" cmp /tmp/wanted /tmp/got
[ "$last" -ge 10 ] || fail "only $last numbers were written: the case shows nothing"

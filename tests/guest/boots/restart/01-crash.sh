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
fio --name=load --filename="$disk" --offset=32m --size=8m --direct=1 --rw=randwrite --bs=4k \
    --ioengine=libaio --iodepth=16 --loops=100 --time_based --runtime=14 --verify=crc32c \
    --verify_fatal=1 >/tmp/fio 2>&1 &
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
echo "  so: no process saw an error"

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

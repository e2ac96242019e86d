# blktests 016, 017, 027, 051, 052, 055, 058: volumes that come and go while the host looks.
connect -i 1
# count: block devices of volumes; a path and a namespace of another kind have none.
count() {
    # Names may go while they are listed.
    ls /dev 2>/dev/null | grep -c '^nvme[0-9]*n[0-9]*$'
}
# becomes WHAT WANTED: so many block devices there are, a little later.
becomes() {
    local tries=0
    while [ "$(count)" != "$2" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "$1: there are $(count) block devices, not $2"
        sleep 0.1
    done
    echo "  so: $1"
}
becomes "one volume" 1
host serve-many >/dev/null
becomes "$MANY more come by themselves, and one" $((MANY + 2))
nvme list-ns "$CTRL" >/tmp/list
same "each in the list of namespaces" $((MANY + 4)) "$(grep -c : /tmp/list)"
expect "one of them can be written" dd if=/dev/zero of="$(volume 142)" bs=4k count=4 oflag=direct
host serve data >/dev/null
becomes "and go" 1

round=0
while [ $round -lt 5 ]; do
    round=$((round + 1))
    host serve data extra >/dev/null
    expect "rescan $round" nvme ns-rescan "$CTRL"
    extra=$(volume 2)
    pattern "round $round" 1 | head -c 65536 >/tmp/wrote
    dd if=/tmp/wrote of="$extra" bs=64k oflag=direct 2>/dev/null || fail "no write to what came"
    dd if="$extra" of=/tmp/read bs=64k count=1 iflag=direct 2>/dev/null || fail "no read of what came"
    cmp -s /tmp/wrote /tmp/read || fail "round $round: other bytes"
    host serve data >/dev/null
    becomes "it is gone" 1
done

# Written while it goes: an error, soon, and nothing that hangs.
host serve data extra >/dev/null
extra=$(volume 2)
while dd if=/dev/zero of="$extra" bs=4k count=64 oflag=direct conv=notrunc; do :; done >/dev/null 2>/tmp/dd &
writer=$!
host serve data >/dev/null
waited=0
while [ -d "/proc/$writer" ]; do
    waited=$((waited + 1))
    [ $waited -lt 150 ] || fail "a writer of a volume that is gone does not end"
    sleep 0.2
done
echo "  so: a writer of a volume that is gone gets an error"
becomes "and its device is gone" 1

host remap >/dev/null
echo "  so: its number is not another volume's as long as this host is connected"
becomes "and no device comes" 1

# Faster than the host looks.
host flicker 10 >/dev/null
expect "a rescan after ten changes" nvme ns-rescan "$CTRL"
becomes "what stays is seen" 1
expect "and can be read" dd if="$(volume 1)" of=/dev/null bs=64k count=16 iflag=direct

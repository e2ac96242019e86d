# Everything is done once with io_uring, and once more when it is denied: results are the same, and what is in use is said.
interfaces() {
    diskside info "$1" | sed -n 's/^io *//p'
}

everything() {
    diskside run wc /tmp/words
    diskside run grep --arg pattern=77 /tmp/words | md5sum
    diskside cp /tmp/words "nvme-tcp://$ADDR:$PORT/$NQN/1" --force >/dev/null
    diskside run stats64 "nvme-tcp://$ADDR:$PORT/$NQN/1"
    diskside run wc "diskside://127.0.0.1:4450/files/words" --where device
    diskside cp "diskside://127.0.0.1:4450/files/words" - | md5sum
    diskside cp /tmp/words "nvme-tcp://127.0.0.1:4450/nqn.2026-11.org.diskside:inside/1" --force >/dev/null
    diskside run wc "nvme-tcp://127.0.0.1:4450/nqn.2026-11.org.diskside:inside/1"
}

serve() {
    diskside serve --no-confine --listen 127.0.0.1:4450 --nqn nqn.2026-11.org.diskside:inside \
        --export files=/tmp --volume data=mem:8MiB,rw >/tmp/served 2>&1 &
    server=$!
    local tries=0
    until grep -q "^serving" /tmp/served; do
        [ $tries -lt 300 ] || { cat /tmp/served; fail "the server does not begin"; }
        sleep 0.1
        tries=$((tries + 1))
    done
}

seq 1 60000 >/tmp/words
truncate -s 1M /tmp/words
inside=nvme-tcp://127.0.0.1:4450/nqn.2026-11.org.diskside:inside

serve
same "a host and a server use io_uring" "host io_uring, server io_uring" "$(interfaces $inside)"
everything >/tmp/with
kill $server
wait $server || fail "the server ended with $?"

echo 2 >/proc/sys/kernel/io_uring_disabled
serve
same "they do without where it is denied" "host posix, server posix" "$(interfaces $inside)"
expect "the server says so" grep -q "io_uring" /tmp/served
everything >/tmp/without
same "all results are the same" "$(cat /tmp/with)" "$(cat /tmp/without)"
kill $server
wait $server || fail "the server ended with $?"

# fio writes and verifies on the one device of two paths, while a path is lost and comes back, and while the server changes the
# states of both. Nothing of that is an error to it, and the I/O is where Linux was told to have it.
for port in "$PORT" "$OTHER"; do
    nvme connect -t tcp -a "$ADDR" -s "$port" -n "$NQN" -i 2 --reconnect-delay=1 --ctrl-loss-tmo=300 >/tmp/said 2>&1 ||
        fail "nvme connect to $port: $(cat /tmp/said)"
done
disk=$(volume 1)

# controller PORT: the controller at this end of a path.
controller() {
    local name
    for name in /sys/class/nvme/nvme*; do
        if grep -q "trsvcid=$1\(,\|$\)" "$name/address"; then
            echo "$name"
            return
        fi
    done
    fail "no controller at port $1"
}
first=$(controller "$PORT") second=$(controller "$OTHER")

# of_path CONTROLLER FILE: what the path's own, hidden device of the volume says.
of_path() {
    local device
    for device in "$1"/nvme*c*n*; do
        if [ "$(cat "$device/nsid")" = 1 ]; then
            cat "$device/$2"
            return
        fi
    done
    fail "${1##*/} has no device of the volume"
}

# carried CONTROLLER: reads and writes that it has carried.
carried() {
    of_path "$1" stat | awk '{ print $1 + $5 }'
}

# carries WHAT CONTROLLER OTHER: from some moment on all I/O is on the first.
carries() {
    local tries=0 here there
    while [ $tries -lt 40 ]; do
        here=$(carried "$2") there=$(carried "$3")
        sleep 1
        if [ "$(carried "$3")" = "$there" ] && [ "$(carried "$2")" -gt "$here" ]; then
            echo "  so: $1"
            return
        fi
        tries=$((tries + 1))
    done
    fail "$1: ${2##*/} carried $(carried "$2"), ${3##*/} $(carried "$3")"
}

# becomes WHAT WANTED COMMAND...: what it prints, a little later.
becomes() {
    local what=$1 wanted=$2 tries=0
    shift 2
    while [ "$("$@")" != "$wanted" ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "$what: $* says $("$@")"
        sleep 0.5
    done
    echo "  so: $what"
}

same "one device" "$disk" "$(echo /dev/nvme*n*)"
nvme list-subsys "$disk" >/tmp/subsystem
same "one subsystem" 1 "$(grep -c "$NQN" /tmp/subsystem)"
same "a path of it is optimized" 1 "$(grep -c "trsvcid=$PORT.* live optimized" /tmp/subsystem)"
same "the other is not" 1 "$(grep -c "trsvcid=$OTHER.* live non-optimized" /tmp/subsystem)"
expect "the log page" nvme ana-log "/dev/${second##*/}"
grep -q "non-optimized" /tmp/said || fail "$(cat /tmp/said)"

load_in_rounds "$disk" --bsrange=4k-32k --size=8m --iodepth=8 &
load=$!

carries "the optimized path carries the I/O" "$first" "$second"
host cut
carries "once it is lost, the other does" "$second" "$first"
same "and Linux connects again" connecting "$(cat "$first/state")"
host mend
becomes "it is back" live cat "$first/state"
carries "and carries the I/O again" "$first" "$second"

host states inaccessible non-optimized
becomes "the server closes it, and tells so" inaccessible of_path "$first" ana_state
carries "the other has the I/O" "$second" "$first"
same "the closed path is still connected" live "$(cat "$first/state")"
nvme list-subsys "$disk" >/tmp/subsystem
same "and shown as closed" 1 "$(grep -c "trsvcid=$PORT.* live inaccessible" /tmp/subsystem)"
host states non-optimized inaccessible
becomes "the other is closed" inaccessible of_path "$second" ana_state
carries "so the first has it, though it is not optimized" "$first" "$second"
host states non-optimized optimized
becomes "the other is the better one" optimized of_path "$second" ana_state
carries "and has it" "$second" "$first"

# With no path open I/O waits: an operator who opens the other one a moment later breaks nothing.
host states inaccessible inaccessible
becomes "both are closed" inaccessible of_path "$second" ana_state
sleep 3
[ -d "/proc/$load" ] || fail "fio ended: $(cat /tmp/fio)"
host states optimized inaccessible
becomes "one is open" optimized of_path "$first" ana_state
carries "and the I/O that waited continues" "$first" "$second"

touch /tmp/stop
wait $load || { cat /tmp/fio; fail "fio saw an error or a wrong block"; }
echo "  so: no error, and all data verified, in $(cat /tmp/rounds) rounds"

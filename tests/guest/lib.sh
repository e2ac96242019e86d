# What cases in the guest may use. A case is a shell script under `set -eu`: it passes when its last
# command succeeds, and what it connected or mounted is undone after it.
#
# From the boot: $ADDR and $PORT of the target, $NQN of its subsystem.

# fail MESSAGE: ends the case.
fail() {
    echo "  not so: $*"
    exit 1
}

# expect WHAT COMMAND...: the command succeeds; otherwise says what it printed.
expect() {
    local what=$1 status=0
    shift
    "$@" >/tmp/said 2>&1 || status=$?
    if [ $status -ne 0 ]; then
        sed 's/^/    /' /tmp/said
        fail "$what: $* ended with $status"
    fi
    echo "  so: $what"
}

# refuse WHAT TEXT COMMAND...: the command fails, and what it prints has TEXT (a basic pattern).
refuse() {
    local what=$1 text=$2
    shift 2
    if "$@" >/tmp/said 2>&1; then
        fail "$what: $* succeeded"
    fi
    grep -qi -e "$text" /tmp/said || {
        sed 's/^/    /' /tmp/said
        fail "$what: no '$text' in what $1 said"
    }
    echo "  so: $what"
}

# same WHAT WANTED GOT
same() {
    [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
    echo "  so: $1"
}

# connect [OPTION...]: connects to $NQN with nvme-cli's options; sets $CTRL (/dev/nvmeN).
connect() {
    nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@" >/tmp/said 2>&1 || {
        cat /tmp/said
        fail "nvme connect $*"
    }
    CTRL=
    local name
    for name in /sys/class/nvme/nvme*; do
        [ "$(cat "$name/subsysnqn")" = "$NQN" ] && CTRL=/dev/$(basename "$name")
    done
    [ -n "$CTRL" ] || fail "no controller for $NQN after connect"
}

# volume NSID: the block device of a namespace of the connected subsystem.
volume() {
    local tries=0 name
    while [ $tries -lt 50 ]; do
        for name in /sys/block/nvme*n*; do
            [ -e "$name/nsid" ] && [ "$(cat "$name/nsid")" = "$1" ] && [ -b "/dev/${name##*/}" ] &&
                echo "/dev/${name##*/}" && return
        done
        sleep 0.1
        tries=$((tries + 1))
    done
    fail "no block device for namespace $1"
}

# generic NSID: the generic device of a namespace, which need not be a volume.
generic() {
    local tries=0 name
    while [ $tries -lt 50 ]; do
        for name in /dev/ng*n*; do
            [ -c "$name" ] && [ "$(nvme get-ns-id "$name" 2>/dev/null | sed 's/.*namespace-id://')" = "$1" ] &&
                echo "$name" && return
        done
        sleep 0.1
        tries=$((tries + 1))
    done
    fail "no generic device for namespace $1"
}

# result: what the command that `expect` ran gave back (dword 0 of its completion).
result() {
    echo $((0x$(sed -n 's/.*result: *0x//p' /tmp/said)))
}

# le BYTES NUMBER: a number as bytes, little endian.
le() {
    local count=$1 number=$2
    while [ "$count" -gt 0 ]; do
        printf "\\$(printf %03o $((number & 255)))"
        number=$((number >> 8))
        count=$((count - 1))
    done
}

# hex: standard input as hex digits.
hex() {
    od -An -v -tx1 | tr -d ' \n'
}

# memory_range NSID START LEN: a Memory Range Descriptor.
memory_range() {
    le 4 "$1"
    le 4 "$3"
    le 8 "$2"
    head -c 16 /dev/zero
}

# load_in_rounds DISK [OPTION...]: fio writes all blocks of a range in a random order and verifies them, again and again until
# /tmp/stop is there; /tmp/rounds has how often. A run of fio that ends by the clock verifies nothing of what it wrote last, and fio
# 3.33 crashes at its end if writes wait just then ("double free").
load_in_rounds() {
    local disk=$1 round=0
    shift
    while [ ! -e /tmp/stop ]; do
        round=$((round + 1))
        fio --name=load --filename="$disk" --direct=1 --rw=randwrite --ioengine=libaio --verify=crc32c --verify_fatal=1 \
            --randseed=$round "$@" >/tmp/fio 2>&1 || return 1
        echo $round >/tmp/rounds
    done
}

disconnect() {
    nvme disconnect -n "$NQN" >/dev/null || fail "nvme disconnect"
}

# host ACTION...: asks the machine outside to do something; prints what it answers.
host() {
    local answer
    echo "@host $*" >/dev/console
    read -r answer </dev/console
    case $answer in
    ok*) echo "${answer#ok}" | sed 's/^ //' ;;
    *)
        echo "  the host says: $answer" >&2
        return 1
        ;;
    esac
}

# allocated_kib NAME: what the file behind a volume takes on its disk. The file is outside, unless
# $VOLUMES says where in the guest.
allocated_kib() {
    if [ -n "${VOLUMES:-}" ]; then
        sync
        echo $(($(stat -c %b "$VOLUMES/$1") / 2))
    else
        host allocated-kib "$1"
    fi
}

# json FILE KEY: the value of a key in nvme-cli's JSON, wherever it is; flat is enough here.
json() {
    sed -n "s/.*\"$2\" *: *\"\{0,1\}\([^\",]*\)\"\{0,1\}.*/\1/p" "$1" | head -n 1
}

# pattern SEED MIB: bytes that only that seed makes.
pattern() {
    yes "$1 Diskside guest test pattern" | head -c $(($2 << 20))
}

tidy_up() {
    local point
    for point in $(awk '$2 ~ /^\/mnt/ { print $2 }' /proc/mounts); do umount "$point"; done
    nvme disconnect-all
    rm -rf /tmp/*
}

# on_a_mounted_volume: what functions do over files of the file system at /mnt.
on_a_mounted_volume() {
    local here there round
    pattern mounted 4 >/mnt/file
    here=$(diskside run wc /mnt/file --where host 2>/dev/null)
    # The path is enough: the kernel tells the volume.
    there=$(diskside run wc /mnt/file --where device --explain --json 2>/tmp/explained) || fail "$(cat /tmp/explained)"
    same "it runs at the device" device "$(echo "$there" | sed -n 's/.*"side": *"\([a-z]*\)".*/\1/p' | head -n 1)"
    same "and finds the same" "$here" "$(diskside run wc /mnt/file --where device 2>/dev/null)"
    exec 3>>/mnt/file
    same "it runs here while someone writes" "$here" "$(diskside run wc /mnt/file --where device --explain 2>/tmp/explained)"
    grep -q "through the file system: someone has it open for writing" /tmp/explained || fail "$(cat /tmp/explained)"
    echo "  so: and says why"
    exec 3>&-
    # Without a lease, a kernel before 6.13 cannot tell whether a file that changed just now changes again. Here that is
    # a file from the future: programs take their time to start.
    same "it runs without a lease, too" "$here" "$(diskside run wc /mnt/file --where device --proof detect 2>/dev/null)"
    date -s "@$(($(date +%s) - 600))" >/dev/null
    diskside run wc /mnt/file --where device --proof detect --explain >/dev/null 2>/tmp/explained
    date -s "@$(($(date +%s) + 600))" >/dev/null
    grep -q "through the file system: it was changed just now" /tmp/explained || fail "$(cat /tmp/explained)"
    echo "  so: but not over a file that is too fresh"

    # Output goes into blocks that the file has, and readers get it: this kernel tells by mincore what it caches.
    yes "x" | head -c $((3 << 20)) >/mnt/output
    sync -f /mnt/output
    cat /mnt/output >/dev/null
    yes "<y" | tr -d '\n' | head -c 80000 >/tmp/runs
    expect "output is written at the volume" pwrite_fn bitmap /mnt/output </tmp/runs
    grep -q "1 at the volume" /tmp/said || fail "it was not: $(cat /tmp/said)"
    # 40,000 pairs of `<`, which is 60, and `y`.
    same "and is what the function made" 2400000 "$(head -c 2400000 /mnt/output | tr -d -c y | wc -c)"
    same "what comes after it is as before" "$(yes x | head -c 745728 | md5sum)" "$(tail -c 745728 /mnt/output | md5sum)"
    same "its length stays" $((3 << 20)) "$(stat -c %s /mnt/output)"

    # A new file takes one of the pool, whose blocks all hold data; what it replaces comes back there.
    for round in first second; do
        there=$(diskside run bitmap /tmp/runs --out /mnt/new --where device --json 2>/tmp/explained) ||
            fail "$(cat /tmp/explained)"
        same "the $round new file is written at the volume" device \
            "$(echo "$there" | sed -n 's/.*"side": *"\([a-z]*\)".*/\1/p' | head -n 1)"
        same "and has all of the output" 2400000 "$(tr -d -c y </mnt/new | wc -c)"
    done
    same "only its owner looks into the pool" 700 "$(stat -c %a /mnt/.diskside-pool)"

    expect "a store is made" diskside-kv create /mnt/store --levels 3
    sync -f /mnt/store
    same "a lookup is pushed down" 12345 "$(diskside-kv get /mnt/store 12345 --explain 2>/tmp/explained)"
    grep -q "1 at the volume" /tmp/explained || fail "it was not: $(cat /tmp/explained)"
    exec 3>>/mnt/store
    same "a lookup beside a writer" 12345 "$(diskside-kv get /mnt/store 12345 --explain 2>/tmp/explained)"
    grep -q "1 plain: writer" /tmp/explained || fail "$(cat /tmp/explained)"
    exec 3>&-
}

# insert_key VERSION HOSTNQN KEY: gives the kernel a key of TLS, under an identity of this version.
insert_key() {
    expect "the kernel takes a key" nvme check-tls-key --insert --identity "$1" --hostnqn "$2" --subsysnqn "$NQN" \
        --keydata "$3"
}

# One host fences the other off with nvme-cli, and Linux makes of a conflict what it makes of one of any disk.
id=0000000$SELF-2026-4111-8111-111111111111
connect -i 1 --hostid "$id" --hostnqn "nqn.2014-08.org.nvmexpress:uuid:$id"
disk=$(volume 1)
write() {
    dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct conv=notrunc
}
read_block() {
    dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
}
first=$([ "$SELF" = 0 ] && echo yes || true)
host meet >/dev/null
if [ -n "$first" ]; then
    expect "the first host registers" nvme resv-register "$disk" -n 1 --nrkey=0xa0 --rrega=0
    expect "and reserves the volume for registrants" nvme resv-acquire "$disk" -n 1 --crkey=0xa0 --rtype=3 --racqa=0
    expect "and writes" write
fi
host meet >/dev/null
if [ -z "$first" ]; then
    refuse "a write of the second host" "Invalid exchange" write
    expect "which may read" read_block
    refuse "a reservation without a registration" "Conflict" \
        nvme resv-acquire "$disk" -n 1 --crkey=0xa1 --rtype=3 --racqa=0
    expect "and register, for good as it asks" nvme resv-register "$disk" -n 1 --nrkey=0xa1 --rrega=0 --cptpl=3
    expect "and then writes" write
fi
host meet >/dev/null
if [ -n "$first" ]; then
    nvme resv-report "$disk" -n 1 --eds -o json >/tmp/report
    same "two are registered" 2 "$(json /tmp/report regctl)"
    same "the type" 3 "$(json /tmp/report rtype)"
    same "nothing persists" 0 "$(json /tmp/report ptpls)"
    expect "the first fences the second off" \
        nvme resv-acquire "$disk" -n 1 --crkey=0xa0 --prkey=0xa1 --rtype=3 --racqa=2
    expect "and writes" write
fi
host meet >/dev/null
if [ -z "$first" ]; then
    refuse "a write of the second host, which was fenced off" "Invalid exchange" write
    expect "it may read" read_block
    nvme get-log "$CTRL" --log-id=0x80 --log-len=64 -b >/tmp/page
    # Linux has no use for the event: the page waits. Byte 8 is its type.
    same "the log says that its registration was preempted" 01 "$(dd if=/tmp/page bs=1 skip=8 count=1 2>/dev/null | hex)"
fi
host meet >/dev/null
if [ -n "$first" ]; then
    expect "the first releases the volume" nvme resv-release "$disk" -n 1 --crkey=0xa0 --rtype=3 --rrela=0
fi
host meet >/dev/null
expect "both write again" write
host meet >/dev/null

# The function commands of docs/wire.md, from a host that has never heard of them.
connect -i 1
disk=$(volume 1) compute=$(generic 1024)

# numbered NAME: the index of a shipped program, from log page C3h.
nvme get-log "$CTRL" -n 1024 -i 0xc3 -l 8192 -b >/tmp/programs
numbered() {
    local index=0 entry
    while [ $index -lt 63 ]; do
        entry=$((64 + 128 * index))
        if [ "$(tail -c +$((entry + 33)) /tmp/programs | head -c 64 | tr -d '\0')" = "$1" ]; then
            echo $((0x$(tail -c +$((entry + 2)) /tmp/programs | head -c 1 | hex)$(tail -c +$((entry + 1)) /tmp/programs | head -c 1 | hex)))
            return
        fi
        index=$((index + 1))
    done
    fail "no program is called $1"
}

# request PIND NSID BYTE LEN: reads of a range of a volume.
request() {
    { le 2 1; le 2 64; le 1 1; le 3 0; le 2 "$1"; le 2 1; head -c 52 /dev/zero; }
    { le 4 1; le 4 "$2"; le 8 "$3"; le 8 "$4"; le 8 0; }
}

function="nvme io-passthru $compute -n 1024"
first_and_last=$((1 << 16 | 1 << 17 | 1))

# send TAG KIND: /tmp/request, in one part.
send() {
    expect "send a request of kind $2" \
        $function -o 0x81 --cdw2=$1 --cdw10=96 --cdw11=$((first_and_last | $2 << 8)) -w -l 96 -i /tmp/request
}

# to_host OPCODE LEN OPTION...: the data, in a buffer that was full of A5h, is in /tmp/back.
to_host() {
    local opcode=$1 len=$2
    shift 2
    $function -o "$opcode" --cdw10="$len" "$@" -r -l "$len" --prefill=0xa5 -b >/tmp/back 2>/tmp/said || {
        cat /tmp/said
        fail "$function -o $opcode $*"
    }
}

# 64 words of one value; what stats64 says of them.
for _ in $(seq 64); do le 8 7; done >/tmp/block
expect "write a block" nvme write "$disk" -s 9 -c 0 -z 512 -d /tmp/block
expect "flush" nvme flush "$disk" -n 1
stats=$({ le 8 64; le 8 448; le 8 7; le 8 7; } | hex)
request "$(numbered stats64)" 1 $((9 * 512)) 512 >/tmp/request
same "a request has 96 bytes" 96 "$(stat -c %s /tmp/request)"

send 1 1
same "all of it was consumed" 96 "$(result)"
# 212 bytes (32 of result, 180 of trailer) for a buffer of 4096: Linux takes data that is shorter than it asked for, and leaves the rest alone.
to_host 0x82 4096 --cdw2=1 --cdw11=1 --cdw14=5000
same "result and trailer are there" 212 "$(result)"
same "the result" "$stats" "$(head -c 32 /tmp/back | hex)"
same "the trailer: version 1, 128 bytes, it ended well" "$({ le 2 1; le 2 128; le 4 0; } | hex)" \
    "$(tail -c +33 /tmp/back | head -c 8 | hex)"
same "the length of the result" "$(le 8 32 | hex)" "$(tail -c +49 /tmp/back | head -c 8 | hex)"
same "the rest of the buffer is as it was" "$(head -c 3884 /dev/zero | tr '\0' '\245' | md5sum)" \
    "$(tail -c +213 /tmp/back | md5sum)"

send 2 1
to_host 0x82 4096 --cdw2=2 --cdw11=3 --cdw14=5000
same "padded, the same bytes count" 212 "$(result)"
same "the same result" "$stats" "$(head -c 32 /tmp/back | hex)"
same "the rest of the buffer is zeroes" "$(head -c 3884 /dev/zero | md5sum)" "$(tail -c +213 /tmp/back | md5sum)"
# What is there is given at once, and no more than the buffer takes.
send 3 1
to_host 0x82 128 --cdw2=3 --cdw11=1 --cdw14=5000
same "the trailer has no room" 32 "$(result)"
to_host 0x82 180 --cdw2=3 --cdw11=1 --cdw12=32 --cdw14=5000
same "and comes alone" 180 "$(result)"

send 4 5
handle=$(result)
to_host 0x86 32 --cdw2="$handle" --cdw11=5000
same "a Call whose result fills its buffer says nothing else" 0 "$(result)"
same "it is the result" "$stats" "$(hex </tmp/back)"
to_host 0x86 4096 --cdw2="$handle" --cdw11=5000
same "a longer buffer has the trailer, too" "212 $stats" "$(result) $(head -c 32 /tmp/back | hex)"
expect "give it up" $function -o 0x88 --cdw2="$handle" --cdw10=2
refuse "a Call of what was given up" '0x4705' $function -o 0x86 --cdw2="$handle" --cdw10=32 -r -l 32

refuse "a Receive of what was never sent" '0x.*701' $function -o 0x82 --cdw2=99 --cdw10=128 --cdw14=100 -r -l 128
request "$(numbered stats64)" 77 0 512 >/tmp/request
refuse "a namespace that is not there" '0x.*188' \
    $function -o 0x81 --cdw2=5 --cdw10=96 --cdw11=$((first_and_last | 1 << 8)) -w -l 96 -i /tmp/request
expect "cancel what has ended" $function -o 0x84 --cdw2=1 --cdw14=100
expect "the target answers" nvme id-ctrl "$CTRL"

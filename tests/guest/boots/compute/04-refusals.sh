# What cannot be is refused with the specification's status, and the target goes on.
connect -i 1
memory=$(generic 1023) compute=$(generic 1024)
admin="nvme admin-passthru $CTRL -n 1024"
refuse "an index that does not exist" '0x418f' $admin -o 0x88 --cdw10=$((60000 | 1 << 16))
refuse "activate nothing" '0x4196' $admin -o 0x88 --cdw10=$((200 | 1 << 16))
head -c 64 /dev/urandom >/tmp/noise
refuse "a program type that is none" '0x4190' \
    $admin -o 0x85 --cdw10=$((200 | 1 << 16)) --cdw11=64 --cdw14=64 -w -l 64 -i /tmp/noise
refuse "a program that is none" '0x418e' \
    $admin -o 0x85 --cdw10=$((200 | 0xc0 << 16)) --cdw11=64 --cdw14=64 -w -l 64 -i /tmp/noise
refuse "a shipped program's place" '0x419a' \
    $admin -o 0x85 --cdw10=$((0xc0 << 16)) --cdw11=64 --cdw14=64 -w -l 64 -i /tmp/noise
memory_range 1 0 512 >/tmp/ranges
refuse "a range of a volume" '0x418b' $admin -o 0x89 --cdw11=1 -w -l 32 -i /tmp/ranges
memory_range 1023 4 512 >/tmp/ranges
refuse "a range that is not aligned" '0x418c' $admin -o 0x89 --cdw11=1 -w -l 32 -i /tmp/ranges
{ memory_range 1023 0 512; memory_range 1023 504 64; } >/tmp/ranges
refuse "ranges that overlap" '0x4197' $admin -o 0x89 --cdw11=2 -w -l 64 -i /tmp/ranges
refuse "no range" '0x4191' $admin -o 0x89 --cdw11=0
refuse "an unknown set" '0x418d' $admin -o 0x89 --cdw10=$((1 | 7 << 16))
refuse "ranges twice" '0x4002' nvme io-passthru "$compute" -n 1024 -o 0x01 --cdw2=$((1 << 16)) --cdw3=1
refuse "an opcode that is none" '0x4001' nvme io-passthru "$memory" -n 1023 -o 0x08
expect "the target answers" nvme id-ctrl "$CTRL"

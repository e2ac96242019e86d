# A program is loaded in two parts, activated and executed over memory that came from a volume.
connect -i 1
disk=$(volume 1) memory=$(generic 1023) compute=$(generic 1024)
echo "$PROGRAM" | base64 -d >/tmp/program
size=$(stat -c %s /tmp/program) half=2048 pind=200
head -c $half /tmp/program >/tmp/first
tail -c +$((half + 1)) /tmp/program >/tmp/second
load="nvme admin-passthru $CTRL -o 0x85 -n 1024 --cdw10=$((pind | 0xc0 << 16)) --cdw11=$size -w"
expect "load the first part" $load --cdw14=$half --cdw15=0 -l $half -i /tmp/first
expect "load the rest" $load --cdw14=$((size - half)) --cdw15=$half -l $((size - half)) -i /tmp/second
execute="nvme io-passthru $compute -n 1024 -o 0x01 --cdw2=$pind"
refuse "execute before it is active" '0x4198' $execute
expect "activate" nvme admin-passthru "$CTRL" -o 0x88 -n 1024 --cdw10=$((pind | 1 << 16))

# 64 words of one value, in one block.
le 8 $((0x0807060504030201)) >/tmp/word
for _ in $(seq 64); do cat /tmp/word; done >/tmp/block
expect "write a block" nvme write "$disk" -s 7 -c 0 -z 512 -d /tmp/block
{ le 4 1; le 4 0; le 8 7; le 2 0; head -c 14 /dev/zero; } >/tmp/source
expect "copy it to memory" \
    nvme io-passthru "$memory" -n 1023 -o 0x01 --cdw2=512 --cdw10=8192 --cdw12=$((2 << 8)) -w -l 32 -i /tmp/source
{ memory_range 1023 8192 512; memory_range 1023 65536 8; } >/tmp/ranges
expect "make a range set" nvme admin-passthru "$CTRL" -o 0x89 -n 1024 --cdw11=2 -w -l 64 -i /tmp/ranges
rsid=$(result)
same "it is the first" 1 "$rsid"
expect "execute over the set" nvme io-passthru "$compute" -n 1024 -o 0x01 --cdw2=$((pind | rsid << 16)) --cdw10=5
same "it returned the number of words" 64 "$(result)"
read_word() { nvme io-passthru "$memory" -n 1023 -o 0x02 --cdw10=65536 --cdw12=8 -r -l 8 -b 2>/dev/null | hex; }
same "their sum, and the parameter, are in memory" "$(le 8 $((0x0807060504030201 * 64 + 5)) | hex)" "$(read_word)"

# Linux passes no DLEN on: the length of the data counts.
expect "execute with ranges in the command" $execute --cdw3=2 --cdw10=9 -w -l 64 -i /tmp/ranges
same "it ran again" "$(le 8 $((0x0807060504030201 * 64 + 9)) | hex)" "$(read_word)"

{ le 4 1023; le 4 0; le 8 8192; le 4 512; head -c 12 /dev/zero; } >/tmp/source
expect "copy memory to the volume" \
    nvme io-passthru "$disk" -n 1 -o 0x19 --cdw10=2048 --cdw12=$((4 << 8)) -w -l 32 -i /tmp/source
expect "flush" nvme flush "$disk" -n 1
expect "delete the set" nvme admin-passthru "$CTRL" -o 0x89 -n 1024 --cdw10=$((1 | rsid << 16))
refuse "execute over a set that is gone" '0x418d' \
    nvme io-passthru "$compute" -n 1024 -o 0x01 --cdw2=$((pind | rsid << 16))
expect "deactivate" nvme admin-passthru "$CTRL" -o 0x88 -n 1024 --cdw10=$pind
expect "unload" nvme admin-passthru "$CTRL" -o 0x85 -n 1024 --cdw10=$((pind | 1 << 24))
refuse "execute what is gone" '0x4196' $execute

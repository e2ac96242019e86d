# Each host verifies a half of its own with random writes, then reads what the other wrote.
connect -i 1
disk=$(volume 1)
mine=$((SELF * 16))
other=$(((1 - SELF) * 16))
host meet >/dev/null
expect "random writes to its own half" fio --name=half --filename="$disk" --direct=1 --rw=randwrite \
    --bsrange=4k-64k --offset=${mine}m --size=4m --ioengine=libaio --iodepth=8 --verify=crc32c \
    --verify_fatal=1
pattern "host $SELF" 2 >/tmp/mine
pattern "host $((1 - SELF))" 2 >/tmp/other
expect "a pattern of its own" dd if=/tmp/mine of="$disk" bs=64k seek=$((mine * 16)) oflag=direct conv=notrunc
expect "flushed" nvme flush "$disk" -n 1
host meet >/dev/null
dd if="$disk" of=/tmp/got bs=64k skip=$((other * 16)) count=32 iflag=direct 2>/dev/null
expect "what the other host flushed is read here" cmp /tmp/other /tmp/got
nvme id-ctrl "$CTRL" -o json >/tmp/ctrl
echo "  so: this host's controller is $(json /tmp/ctrl cntlid)"
host meet >/dev/null

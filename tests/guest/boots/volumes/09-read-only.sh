# A read-only volume refuses writes, at the block layer and on the wire.
connect -i 1
disk=$(volume 3)
same "the block device is read-only" 1 "$(blockdev --getro "$disk")"
same "its content is there" "read only" "$(dd if="$disk" bs=512 count=1 2>/dev/null | head -c 9)"
head -c 512 /dev/zero >/tmp/zero
refuse "a write command is refused" 'read.only\|write.protected' \
    nvme io-passthru "/dev/ng${disk#/dev/nvme}" --opcode=0x01 -n 3 -l 512 -w -i /tmp/zero

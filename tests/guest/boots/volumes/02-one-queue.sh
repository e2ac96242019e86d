# The least a host can ask for: one I/O queue, one block device.
connect -i 1
same "one admin and one I/O queue" 2 "$(cat "/sys/class/nvme/${CTRL##*/}/queue_count")"
disk=$(volume 1)
pattern one 4 >/tmp/wrote
expect "4 MiB written" dd if=/tmp/wrote of="$disk" bs=64k oflag=direct
expect "flushed" nvme flush "$disk" -n 1
dd if="$disk" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
expect "read back equal" cmp /tmp/wrote /tmp/read
disconnect
connect -i 1
dd if="$(volume 1)" of=/tmp/again bs=64k count=64 iflag=direct 2>/dev/null
expect "and equal after another connect" cmp /tmp/wrote /tmp/again

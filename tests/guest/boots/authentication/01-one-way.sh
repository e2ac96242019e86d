# The host proves who it is, on its admin queue and on its I/O queue.
connect --hostnqn "$HOSTNQN" --hostid "$HOSTID" --dhchap-secret "$KEY" -i 1
same "an admin and an I/O queue" 2 "$(cat "/sys/class/nvme/${CTRL##*/}/queue_count")"
disk=$(volume 1)
pattern one 4 >/tmp/wrote
expect "4 MiB written" dd if=/tmp/wrote of="$disk" bs=64k oflag=direct
dd if="$disk" of=/tmp/read bs=64k count=64 iflag=direct 2>/dev/null
expect "and read back equal" cmp /tmp/wrote /tmp/read
disconnect

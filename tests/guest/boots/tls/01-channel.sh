# The host comes over TLS with a key of its tools' making: admin and I/O queues, data both ways.
insert_key 1 "$NEW_NQN" "$NEW_KEY"
connect --hostnqn "$NEW_NQN" --hostid "$NEW_ID" --tls -i 2
same "an admin and two I/O queues" 3 "$(cat "/sys/class/nvme/${CTRL##*/}/queue_count")"
disk=$(volume 1)
pattern one 8 >/tmp/wrote
expect "8 MiB written" dd if=/tmp/wrote of="$disk" bs=1M oflag=direct
dd if="$disk" of=/tmp/read bs=128k count=64 iflag=direct 2>/dev/null
expect "and read back equal" cmp /tmp/wrote /tmp/read
dd if="$disk" of=/tmp/read bs=4k count=2048 iflag=direct 2>/dev/null
expect "in small blocks, too" cmp /tmp/wrote /tmp/read
same "and outside" one "$(host reads)"
disconnect
connect --hostnqn "$NEW_NQN" --hostid "$NEW_ID" --tls --hdr-digest --data-digest -i 1
disk=$(volume 1)
dd if="$disk" of=/tmp/read bs=1M count=8 iflag=direct 2>/dev/null
expect "with digests, too" cmp /tmp/wrote /tmp/read
disconnect

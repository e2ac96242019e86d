# Deallocated blocks go back to whoever stores the volume, and read as zeroes.
connect -i 1
disk=$(volume 2)
pattern discard 16 | dd of="$disk" bs=1M oflag=direct iflag=fullblock 2>/dev/null
nvme flush "$disk" -n 2 >/dev/null
before=$(allocated_kib wide.img)
[ "$before" -ge 16384 ] || fail "16 MiB written take only $before KiB"
expect "blkdiscard" blkdiscard "$disk"
nvme flush "$disk" -n 2 >/dev/null
after=$(allocated_kib wide.img)
[ "$after" -lt 1024 ] || fail "after discarding all, $after KiB are still allocated"
echo "  so: $before KiB shrank to $after KiB"
dd if="$disk" bs=1M count=16 iflag=direct 2>/dev/null | tr -d '\0' | wc -c >/tmp/rest
same "discarded blocks are zero" 0 "$(cat /tmp/rest)"

expect "mkfs.ext4" mkfs.ext4 -q -F "$disk"
mkdir -p /mnt/b
mount -t ext4 "$disk" /mnt/b
pattern trim 32 >/mnt/b/file
sync
full=$(allocated_kib wide.img)
rm /mnt/b/file
sync
expect "fstrim" fstrim /mnt/b
trimmed=$(allocated_kib wide.img)
[ "$trimmed" -lt $((full - 24576)) ] || fail "fstrim: $full KiB became only $trimmed KiB"
echo "  so: after fstrim $full KiB became $trimmed KiB"

# A file system, as a user would have it: files copied, unmounted, mounted again and compared.
connect -i 2
disk=$(volume 1)
expect "mkfs.ext4" mkfs.ext4 -q -F "$disk"
mkdir -p /mnt/a
expect "mount" mount -t ext4 "$disk" /mnt/a
cp -r /usr /lib/modules /mnt/a/
sync
(cd / && find usr lib/modules -type f | sed 's,^lib/,,' | sort) >/tmp/names
expect "unmount" umount /mnt/a
disconnect
connect -i 1
disk=$(volume 1)
expect "e2fsck finds nothing to mend" e2fsck -f -n "$disk"
expect "mount after another connect" mount -t ext4 -o ro "$disk" /mnt/a
count=0
while read -r name; do
    source=/$name
    [ -e "$source" ] || source=/lib/$name
    cmp -s "$source" "/mnt/a/$name" || fail "$name differs"
    count=$((count + 1))
done </tmp/names
[ "$count" -gt 20 ] || fail "only $count files were compared"
echo "  so: $count files are equal"

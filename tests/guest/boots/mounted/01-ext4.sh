# Files on ext4, at the volume and through the file system.
connect -i 1
mkfs.ext4 -q "$(volume 1)"
mount "$(volume 1)" /mnt
on_a_mounted_volume
umount /mnt
expect "the file system is sound" e2fsck -f -n "$(volume 1)"

# The same on XFS.
connect -i 1
modprobe xfs
mkfs.xfs -q -m reflink=1 "$(volume 2)"
mount "$(volume 2)" /mnt
on_a_mounted_volume
umount /mnt
expect "the file system is sound" xfs_repair -n "$(volume 2)"

# Commands that file systems seldom send.
connect -i 1
disk=$(volume 1)
pattern commands 1 | head -c 4096 >/tmp/block
expect "write" nvme write "$disk" -s 8 -c 7 -z 4096 -d /tmp/block
expect "compare equal" nvme compare "$disk" -s 8 -c 7 -z 4096 -d /tmp/block
pattern other 1 | head -c 4096 >/tmp/other
refuse "compare unequal" 'compare' nvme compare "$disk" -s 8 -c 7 -z 4096 -d /tmp/other
expect "verify" nvme verify "$disk" -s 8 -c 7
expect "write zeroes" nvme write-zeroes "$disk" -s 8 -c 7
head -c 4096 /dev/zero >/tmp/zero
expect "zeroes are read" nvme compare "$disk" -s 8 -c 7 -z 4096 -d /tmp/zero
expect "write with FUA" nvme write "$disk" -s 16 -c 7 -z 4096 -d /tmp/block --force-unit-access
expect "copy" nvme copy "$disk" --sdlba=32 --slbs=16 --blocks=7
expect "the copy is equal" nvme compare "$disk" -s 32 -c 7 -z 4096 -d /tmp/block
blocks=$(blockdev --getsz "$disk")
refuse "a read beyond the end" 'range' nvme read "$disk" -s "$blocks" -c 0 -z 512 -d /tmp/past

# The kernel takes namespaces of the memory and compute command sets as generic devices.
connect -i 1
memory=$(generic 1023)
compute=$(generic 1024)
echo "  $memory, $compute"
same "a volume is there, too" 1 "$(nvme get-ns-id "$(volume 1)" | sed 's/.*namespace-id://')"
same "no block device is shown for the others" 1 "$(ls /dev/nvme*n* | wc -l)"
nvme admin-passthru "$CTRL" -o 0x06 -n 1023 --cdw10=0x05 --cdw11=0x03000000 -r -l 4096 -b >/tmp/id
same "the memory namespace has 64 MiB" "$(le 8 $((64 << 20)) | hex)" "$(head -c 8 /tmp/id | hex)"
nvme get-log "$CTRL" -n 1024 -i 0x82 -l 128 -b >/tmp/programs
same "program 0 is device-defined and active" 6 "$((0x$(tail -c +65 /tmp/programs | head -c 1 | hex) & 7))"
nvme get-log "$CTRL" -n 0 -i 0x1a -l 256 -b >/tmp/groups
same "three reachability groups" 03 "$(tail -c +9 /tmp/groups | head -c 1 | hex)"
nvme get-log "$CTRL" -n 0 -i 0x1b -l 128 -b >/tmp/associations
same "two reachability associations" 02 "$(tail -c +9 /tmp/associations | head -c 1 | hex)"

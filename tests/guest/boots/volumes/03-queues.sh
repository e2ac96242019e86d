# Several I/O queues, and queues that the host polls.
connect -i 2 -P 1
same "an admin queue, two for interrupts, one polled" 4 "$(cat "/sys/class/nvme/${CTRL##*/}/queue_count")"
disk=$(volume 1)
expect "both processors write at once" fio --name=both --filename="$disk" --direct=1 --rw=randwrite \
    --bs=4k --size=3m --numjobs=2 --offset_increment=4m --ioengine=libaio --iodepth=8 --verify=crc32c
expect "polled reads" fio --name=polled --filename="$disk" --direct=1 --rw=randread --bs=4k --size=1m \
    --ioengine=pvsync2 --hipri=1

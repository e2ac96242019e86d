# blktests 029, 049: commands by nvme-cli, and by io_uring to the generic device, without the block layer.
# Not polled ones: these end this kernel, in bio_poll, whatever the target is.
connect -i 1
disk=$(volume 1)
generic=/dev/ng${disk#/dev/nvme}
head -c 4096 /dev/urandom >/tmp/wrote
expect "a block is written" nvme write "$disk" -s 1 -c 7 -z 4096 -d /tmp/wrote
expect "and read" nvme read "$disk" -s 1 -c 7 -z 4096 -d /tmp/read
expect "as it was" cmp /tmp/wrote /tmp/read

job() {
    local what=$1
    shift
    expect "$what" fio --name=passthrough --filename="$generic" --ioengine=io_uring_cmd --cmd_type=nvme --bs=4k --size=1m \
        --iodepth=16 "$@"
}
job "random writes, verified" --rw=randwrite --verify=crc32c --verify_fatal=1
job "random reads" --rw=randread
job "reads into registered buffers" --rw=randread --fixedbufs

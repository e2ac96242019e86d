# blktests 046 and 049 polled: what Linux 6.1 does not do, or crashes in. Of the newer kernels here only this one's image has fio.
PORT=$OPEN_PORT
connect -i 1 -P 1
disk=$(volume 1)
generic=/dev/ng${disk#/dev/nvme}

polled() {
    local what=$1
    shift
    expect "$what" fio --name=polled --filename="$generic" --ioengine=io_uring_cmd --cmd_type=nvme --hipri --bs=4k --size=1m \
        --iodepth=16 "$@"
}
polled "polled writes, verified" --rw=randwrite --verify=crc32c --verify_fatal=1
polled "polled reads" --rw=randread
polled "polled reads into registered buffers" --rw=randread --fixedbufs

# The host's kernel decides what users may send.
echo user:x:1000:1000::/tmp:/bin/sh >>/etc/passwd
chmod go+r "$generic"
as_user() {
    su -s /bin/sh -c "$*" user
}
io="nvme io-passthru $generic --namespace-id=1 --cdw12=7 --data-len=4096"
dd if="$disk" of=/tmp/wrote bs=4096 count=1 iflag=direct 2>/dev/null
expect "a user who may read, reads" as_user "$io --opcode=2 --read --raw-binary >/tmp/read-by-user"
expect "as it is" cmp /tmp/wrote /tmp/read-by-user
refuse "and does not write" "denied\|permitted" as_user "$io --opcode=1 --write --input-file=/tmp/read-by-user"
expect "a user identifies the namespace" as_user "nvme id-ns $generic"
expect "and the controller" as_user "nvme id-ctrl $generic"
refuse "and sends no other admin command" "denied\|permitted" as_user "nvme ns-descs $generic"
disconnect

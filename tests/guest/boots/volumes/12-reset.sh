# A controller reset under load, and a keep alive that outlives idleness.
connect -i 2 --keep-alive-tmo=2
disk=$(volume 1)
fio --name=load --filename="$disk" --direct=1 --rw=randwrite --bs=4k --size=4m --ioengine=libaio \
    --iodepth=8 --verify=crc32c --verify_fatal=1 --loops=4 >/tmp/load 2>&1 &
load=$!
sleep 2
expect "reset" nvme reset "$CTRL"
wait $load || { cat /tmp/load; fail "I/O did not survive a reset"; }
echo "  so: I/O in flight survived"
sleep 5
same "live after being idle for longer than the keep alive timeout" live \
    "$(cat "/sys/class/nvme/${CTRL##*/}/state")"
expect "and it reads" dd if="$disk" of=/dev/null bs=4k count=16 iflag=direct

# nvmet-tcp with a RAM disk as namespace 1 and a file as namespace 2.
modprobe -a nvmet-tcp
modprobe brd rd_nr=1 rd_size=$((VOLUME_MIB * 1024))
mkdir -p $VOLUMES
dd if=/dev/zero of=$VOLUMES/wide.img bs=1M count=0 seek="$VOLUME_MIB" 2>/dev/null
mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir "subsystems/$NQN"
echo 1 >"subsystems/$NQN/attr_allow_any_host"
for pair in "1 /dev/ram0" "2 $VOLUMES/wide.img"; do
    ns=subsystems/$NQN/namespaces/${pair%% *}
    mkdir "$ns"
    echo -n "${pair#* }" >"$ns/device_path"
    # tmpfs has no direct I/O.
    case $pair in *.img) echo 1 >"$ns/buffered_io" ;; esac
    echo 1 >"$ns/enable"
done
mkdir ports/1
echo ipv4 >ports/1/addr_adrfam
echo tcp >ports/1/addr_trtype
echo "$ADDR" >ports/1/addr_traddr
echo "$PORT" >ports/1/addr_trsvcid
ln -s "/sys/kernel/config/nvmet/subsystems/$NQN" "ports/1/subsystems/$NQN"
echo "  so: the kernel's target is up"

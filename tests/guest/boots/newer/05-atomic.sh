# blktests 059: atomic writes, as the host's block layer sees them. No program of this image writes with RWF_ATOMIC. The disk above all
# paths has these limits here, and none in Linux 6.12.
PORT=$ATOMIC_PORT
connect -i 1
disk=$(volume 1)
queue=/sys/block/${disk#/dev/}/queue
same "the block layer knows how long an atomic write can be" 16384 "$(cat "$queue/atomic_write_unit_max_bytes")"
same "and how short" 512 "$(cat "$queue/atomic_write_unit_min_bytes")"
blocks=$(nvme id-ns "$disk" | sed -n 's/^nawupf *: *//p')
same "as the namespace says" "$(((blocks + 1) * 512))" "$(cat "$queue/atomic_write_max_bytes")"
disconnect

# Memory is written, read and filled through the generic device.
connect -i 1
memory=$(generic 1023)
pattern memory 1 | head -c 65536 >/tmp/bytes
expect "write" nvme io-passthru "$memory" -n 1023 -o 0x05 --cdw10=4096 --cdw12=65536 -w -l 65536 -i /tmp/bytes
nvme io-passthru "$memory" -n 1023 -o 0x02 --cdw10=4096 --cdw12=65536 -r -l 65536 -b >/tmp/back 2>/dev/null
expect "what is read is what was written" cmp /tmp/bytes /tmp/back
expect "fill" nvme io-passthru "$memory" -n 1023 -o 0x04 --cdw10=4096 --cdw12=4096
nvme io-passthru "$memory" -n 1023 -o 0x02 --cdw10=4096 --cdw12=8192 -r -l 8192 -b >/tmp/back 2>/dev/null
head -c 4096 /dev/zero >/tmp/want
tail -c +4097 /tmp/bytes | head -c 4096 >>/tmp/want
expect "it is filled with zeroes" cmp /tmp/want /tmp/back
refuse "a read that is not aligned" '0x4002' nvme io-passthru "$memory" -n 1023 -o 0x02 --cdw10=2 --cdw12=4 -r -l 4

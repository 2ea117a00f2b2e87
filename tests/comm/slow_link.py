# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a network namespace whose one address is reached through a slow link: every packet is late, and
some are lost. The link is a TUN device: this process reads what is sent to it and writes it back later. The last line
on standard error says how many packets there were.

    unshare -rn python3 slow_link.py DELAY_MS LOSS_PERCENT COMMAND [ARGUMENT ...]

Exit status: the command's; 77 where the system has no such device.
"""
import collections
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time

NAME, ADDRESS, QUEUE = "slow0", "10.9.0.1", 10000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000  # linux/if_tun.h


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def ip(words):
    subprocess.run(["ip", *words.split()], check=True)


def open_link():
    """The device. What this machine sends to the address goes there, and what comes out of it is taken."""
    link = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(link, TUNSETIFF, struct.pack("16sH", NAME.encode(), IFF_TUN | IFF_NO_PI))
    for words in ("link set lo up", f"addr add {ADDRESS}/32 dev {NAME}", f"link set {NAME} up txqueuelen {QUEUE}",
                  f"route add {ADDRESS} dev {NAME} src {ADDRESS} table 100", f"rule add pref 1 iif {NAME} lookup local",
                  f"rule add pref 2 to {ADDRESS} lookup 100", "rule add pref 3 lookup local", "rule del pref 0"):
        ip(words)
    for which in "all", NAME:
        write(f"/proc/sys/net/ipv4/conf/{which}/rp_filter", "0")
        write(f"/proc/sys/net/ipv4/conf/{which}/accept_local", "1")
    return link


class Link(threading.Thread):
    def __init__(self, link, delay, loss):
        super().__init__(daemon=True)
        self.link, self.delay, self.loss = link, delay, loss
        self.late = collections.deque()  # (when, packet)
        self.packets = self.lost = 0
        self.random = random.Random(1)

    def take(self):
        for _ in range(64):
            try:
                packet = os.read(self.link, 65536)
            except BlockingIOError:
                return
            self.packets += 1
            if self.random.random() < self.loss:
                self.lost += 1
            else:
                self.late.append((time.monotonic() + self.delay, packet))

    def run(self):
        while True:
            wait = max(0, self.late[0][0] - time.monotonic()) if self.late else None
            if select.select([self.link], [], [], wait)[0]:
                self.take()
            while self.late and self.late[0][0] <= time.monotonic():
                os.write(self.link, self.late.popleft()[1])


def main():
    delay, loss, command = float(sys.argv[1]) / 1000, float(sys.argv[2]) / 100, sys.argv[3:]
    try:
        device = open_link()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"slow_link: {error}", file=sys.stderr)
        return 77
    link = Link(device, delay, loss)
    link.start()
    code = subprocess.run(command, check=False).returncode
    print(f"slow_link: {link.packets} packets, {link.lost} lost", file=sys.stderr)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())

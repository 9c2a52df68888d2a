"""Code in another process's place: system calls that a process makes as if it had been taken over. x86-64 only, and for root."""

import contextlib
import ctypes
import ctypes.util
import os
import platform
import signal

_libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
POKE_DATA, SINGLE_STEP, GET_REGISTERS, SET_REGISTERS, ATTACH, DETACH = 5, 9, 12, 13, 16, 17
# waitpid of a process that is traced, and no child.
WAIT_ALL = 0x40000000
SYSCALL_BYTES = 2
# What may be below the stack's end by the calling convention, and room for a text.
BELOW_STACK = 4096

NUMBERS = {"open": 2, "mmap": 9, "socket": 41, "fork": 57, "kill": 62, "truncate": 76, "unlink": 87, "prctl": 157, "read_memory": 310}


class Registers(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in [
            "r15",
            "r14",
            "r13",
            "r12",
            "rbp",
            "rbx",
            "r11",
            "r10",
            "r9",
            "r8",
            "rax",
            "rcx",
            "rdx",
            "rsi",
            "rdi",
            "orig_rax",
            "rip",
            "cs",
            "eflags",
            "rsp",
            "ss",
            "fs_base",
            "gs_base",
            "ds",
            "es",
            "fs",
            "gs",
        ]
    ]


def is_possible():
    return platform.machine() == "x86_64" and os.geteuid() == 0


class Intruder:
    """Makes system calls in a process that waits in one. When it leaves, the process goes on as it was."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        self._ptrace(ATTACH)
        os.waitpid(self.pid, WAIT_ALL)
        self.before = self._registers()
        return self

    def __exit__(self, *_):
        self._ptrace(SET_REGISTERS, data=ctypes.byref(self.before))
        self._ptrace(DETACH)

    def call(self, name, *arguments):
        """What the kernel answers: a number, or the negative number of an error. Texts and bytes are put on the stack."""
        registers = Registers.from_buffer_copy(self.before)
        registers.rip -= SYSCALL_BYTES
        registers.rax, registers.orig_rax = NUMBERS[name], ctypes.c_ulonglong(-1).value
        at = registers.rsp - BELOW_STACK
        for place, argument in zip(["rdi", "rsi", "rdx", "r10", "r8", "r9"], arguments, strict=False):
            if isinstance(argument, (str, bytes)):
                argument = self._put(at, argument)
                at += BELOW_STACK // 8
            setattr(registers, place, argument & 0xFFFFFFFFFFFFFFFF)
        self._ptrace(SET_REGISTERS, data=ctypes.byref(registers))
        self._ptrace(SINGLE_STEP)
        _, status = os.waitpid(self.pid, WAIT_ALL)
        if not os.WIFSTOPPED(status):
            return f"the process ended: {status}"
        return ctypes.c_longlong(self._registers().rax).value

    def _put(self, at, text):
        data = (text.encode() if isinstance(text, str) else text) + b"\0"
        data += b"\0" * (-len(data) % 8)
        for offset in range(0, len(data), 8):
            self._ptrace(POKE_DATA, at + offset, int.from_bytes(data[offset : offset + 8], "little"))
        return at

    def _registers(self):
        registers = Registers()
        self._ptrace(GET_REGISTERS, data=ctypes.byref(registers))
        return registers

    def _ptrace(self, what, address=0, data=0):
        if _libc.ptrace(what, self.pid, address, data) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {what}")


def end_child(number):
    """What `fork` made, if it did."""
    if isinstance(number, int) and number > 0:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)

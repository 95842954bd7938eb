"""A small C library that makes chosen system calls on files below a folder fail, preloaded.

    calls = FailingCalls(folder, scratch)                  # compiles it: needs gcc
    subprocess.Popen(..., env=os.environ | calls.environment)
    calls.fail("write", errno.ENOSPC, after=10, times=FOREVER)

All processes with that environment share one memory map: which call is to fail, how many come
before it, and how many have failed.  What a process does with other files is left alone.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

OPERATIONS = ("open", "read", "write", "fsync", "rename")
FOREVER = 1 << 60

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, FSYNC, RENAME };
struct control {
    _Atomic long operation, error, before, times, failed, seen[5];
};
static struct control *control;
static const char *folder;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int fails(int operation, const char *path) {
    if (!control || !path || strncmp(path, folder, strlen(folder))) return 0;
    atomic_fetch_add(&control->seen[operation], 1);
    if (control->operation != operation || control->times <= 0) return 0;
    if (control->before > 0 && atomic_fetch_sub(&control->before, 1) > 0) return 0;
    if (atomic_fetch_sub(&control->times, 1) <= 0) return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = control->error;
    return 1;
}

static int file_fails(int operation, int fd) {
    char link[40], path[PATH_MAX];
    int saved = errno;
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (n < 0) return 0;
    path[n] = 0;
    return fails(operation, path);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAILING_CALLS_CONTROL");
    folder = getenv("FAILING_CALLS_FOLDER");
    if (!path || !folder) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *at = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
    close(fd);
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        return fails(OPEN, path) ? -1 : real(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        return fails(OPEN, path) ? -1 : real(at, path, flags, mode); \
    }
#define ON_FILE(result, name, operation, given, passed) \
    result name given { REAL(name); return file_fails(operation, fd) ? -1 : real passed; }

OPENS(open) OPENS(open64) OPENS_AT(openat) OPENS_AT(openat64)
ON_FILE(ssize_t, read, READ, (int fd, void *to, size_t n), (fd, to, n))
ON_FILE(ssize_t, pread, READ, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
ON_FILE(ssize_t, pread64, READ, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
ON_FILE(ssize_t, write, WRITE, (int fd, const void *of, size_t n), (fd, of, n))
ON_FILE(ssize_t, pwrite, WRITE, (int fd, const void *of, size_t n, off_t at), (fd, of, n, at))
ON_FILE(ssize_t, pwrite64, WRITE, (int fd, const void *of, size_t n, off64_t at), (fd, of, n, at))
ON_FILE(ssize_t, writev, WRITE, (int fd, const struct iovec *of, int n), (fd, of, n))
ON_FILE(int, fsync, FSYNC, (int fd), (fd))
ON_FILE(int, fdatasync, FSYNC, (int fd), (fd))
int rename(const char *from, const char *to) {
    REAL(rename);
    return fails(RENAME, to) ? -1 : real(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    return fails(RENAME, to) ? -1 : real(a, from, b, to);
}
"""
_CONTROL = struct.Struct("10q")


def missing() -> str | None:
    """Why there is no such library here, None where there can be one."""
    return None if shutil.which("gcc") else "gcc, which compiles the failing calls, is not there"


def compiled(scratch: Path) -> Path:
    """The library, made in a folder."""
    library = scratch / "failing_calls.so"
    if not library.exists():
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-x", "c", "-", "-o", library, "-ldl"],
            input=SOURCE.encode(), check=True,
        )  # fmt: skip
    return library


class FailingCalls:
    """Calls that fail on files below ``folder``, for processes with this ``environment``.

    The library and what tells it are in ``scratch``, another folder.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.environment = {
            "LD_PRELOAD": str(compiled(scratch)),
            "FAILING_CALLS_FOLDER": str(folder.resolve()),
            "FAILING_CALLS_CONTROL": str(scratch / "failing_calls"),
        }
        self._open(scratch / "failing_calls")

    @classmethod
    def of_this_process(cls) -> FailingCalls:
        """Those of a process that was started with such an environment."""
        calls = cls.__new__(cls)
        calls._open(Path(os.environ["FAILING_CALLS_CONTROL"]))
        return calls

    def _open(self, control: Path) -> None:
        if not control.exists():
            control.write_bytes(bytes(_CONTROL.size))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def fail(self, operation: str, error: int, after: int = 0, times: int = 1) -> None:
        """Let this call fail with an errno, after so many that succeed, so many times."""
        at = OPERATIONS.index(operation)
        self._map[: _CONTROL.size] = _CONTROL.pack(at, error, after, times, *[0] * 6)

    def stop(self) -> None:
        """Let all calls be again; start to count them anew."""
        self.fail("open", 0, times=0)

    @property
    def failed(self) -> int:
        """Calls that have failed since the last order."""
        return int(_CONTROL.unpack(self._map[: _CONTROL.size])[4])

    @property
    def seen(self) -> dict[str, int]:
        """Calls on files of the folder since the last order, by operation."""
        return dict(zip(OPERATIONS, _CONTROL.unpack(self._map[: _CONTROL.size])[5:], strict=True))

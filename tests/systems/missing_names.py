"""Names of the standard library that Python on Windows or macOS lacks.

Source: Python's documentation, lines "Availability: Unix", "not Windows", "not macOS" and
"Linux" of each module, and its pages on Unix-specific modules. Names that Linux lacks too, and
constants of calls that are in the lists, are left out.
"""

from __future__ import annotations

# Modules that cannot be imported.
MODULES = {
    "windows": (
        "_curses", "_posixshmem", "_posixsubprocess", "crypt", "curses", "fcntl", "grp", "nis",
        "ossaudiodev", "posix", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios",
        "tty",
    ),
    "macos": ("msvcrt", "ossaudiodev", "spwd", "winreg"),
}  # fmt: skip

# Attributes of modules.
NAMES = {
    "windows": {
        "os": (
            "O_ASYNC", "O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_DSYNC", "O_LARGEFILE",
            "O_NDELAY", "O_NOATIME", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_RSYNC",
            "O_SYNC", "O_TMPFILE",
            "EX_USAGE", "EX_DATAERR", "EX_NOINPUT", "EX_SOFTWARE", "EX_OSERR",
            "EX_CANTCREAT", "EX_IOERR", "EX_TEMPFAIL", "EX_NOPERM",
            "F_LOCK", "F_TEST", "F_TLOCK", "F_ULOCK", "P_ALL", "P_PID", "P_PGID", "PRIO_PROCESS",
            "RTLD_DEEPBIND", "RTLD_GLOBAL", "RTLD_LAZY", "RTLD_LOCAL", "RTLD_NODELETE",
            "RTLD_NOLOAD", "RTLD_NOW",
            "SEEK_DATA", "SEEK_HOLE", "ST_NOSUID", "ST_RDONLY", "WCONTINUED", "WCOREDUMP",
            "WEXITSTATUS", "WIFCONTINUED", "WIFEXITED", "WIFSIGNALED", "WIFSTOPPED", "WNOHANG",
            "WSTOPSIG", "WTERMSIG", "WUNTRACED",
            "chown", "chroot", "confstr", "confstr_names", "copy_file_range", "ctermid",
            "eventfd", "fchdir", "fchown", "fdatasync", "fork", "forkpty", "fpathconf",
            "fstatvfs", "get_blocking", "getegid", "geteuid", "getgid", "getgrouplist",
            "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority", "getrandom",
            "getresgid", "getresuid", "getsid", "getuid", "getxattr", "initgroups", "killpg",
            "lchown", "listxattr", "lockf", "major", "makedev", "memfd_create", "minor", "mkfifo",
            "mknod", "nice", "openpty", "pathconf", "pathconf_names", "pidfd_open", "pipe2",
            "posix_fadvise", "posix_fallocate", "posix_spawn", "posix_spawnp", "pread", "preadv",
            "pwrite", "pwritev", "readv", "register_at_fork", "removexattr",
            "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
            "sched_getparam", "sched_getscheduler", "sched_param", "sched_rr_get_interval",
            "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_yield",
            "sendfile", "set_blocking", "setegid", "seteuid", "setgid", "setgroups", "setns",
            "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid",
            "setuid", "setxattr", "splice", "statvfs", "sync", "sysconf", "sysconf_names",
            "tcgetpgrp", "tcsetpgrp", "ttyname", "uname", "uname_result", "unshare", "wait",
            "wait3", "wait4", "waitid", "waitid_result", "writev",
        ),
        "signal": (
            "ITIMER_PROF", "ITIMER_REAL", "ITIMER_VIRTUAL", "ItimerError", "SIGALRM", "SIGBUS",
            "SIGCHLD", "SIGCLD", "SIGCONT", "SIGHUP", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE",
            "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT",
            "SIGSTOP", "SIGSYS", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1",
            "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIG_BLOCK", "SIG_SETMASK",
            "SIG_UNBLOCK", "alarm", "getitimer", "pause", "pidfd_send_signal", "pthread_kill",
            "pthread_sigmask", "setitimer", "siginterrupt", "sigpending", "sigtimedwait",
            "sigwait", "sigwaitinfo",
        ),
        "time": (
            "CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_PROCESS_CPUTIME_ID",
            "CLOCK_REALTIME", "CLOCK_TAI", "CLOCK_THREAD_CPUTIME_ID", "clock_getres",
            "clock_gettime", "clock_gettime_ns", "clock_settime", "clock_settime_ns",
            "pthread_getcpuclockid", "tzset",
        ),
        "select": ("EPOLLIN", "EPOLLOUT", "PIPE_BUF", "epoll", "poll"),
        "socket": ("AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_ALG", "CMSG_LEN", "CMSG_SPACE"),
        "mmap": ("MAP_ANON", "MAP_ANONYMOUS", "MAP_PRIVATE", "MAP_SHARED", "PROT_READ",
                 "PROT_WRITE", "PROT_EXEC"),
        "faulthandler": ("register", "unregister"),
        "sys": ("abiflags", "getdlopenflags", "setdlopenflags"),
        "numpy": ("float128", "complex256"),
    },
    "macos": {
        "os": (
            "O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_RSYNC", "O_TMPFILE",
            "RTLD_DEEPBIND",
            "POSIX_FADV_DONTNEED", "POSIX_FADV_NOREUSE", "POSIX_FADV_NORMAL", "POSIX_FADV_RANDOM",
            "POSIX_FADV_SEQUENTIAL", "POSIX_FADV_WILLNEED", "SPLICE_F_MORE", "SPLICE_F_MOVE",
            "SPLICE_F_NONBLOCK", "CLONE_FS", "CLONE_NEWNS",
            "copy_file_range", "eventfd", "eventfd_read", "eventfd_write", "fdatasync",
            "getrandom", "getresgid", "getresuid", "getxattr", "listxattr", "memfd_create",
            "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "removexattr",
            "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sched_param",
            "sched_rr_get_interval", "sched_setaffinity", "sched_setparam",
            "sched_setscheduler", "setns", "setresgid", "setresuid", "setxattr", "splice",
            "unshare",
        ),
        "signal": (
            "SIGCLD", "SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT",
            "pidfd_send_signal", "sigtimedwait", "sigwaitinfo",
        ),
        "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
        "select": ("EPOLLIN", "EPOLLOUT", "epoll"),
        "socket": ("AF_NETLINK", "AF_PACKET", "AF_ALG", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
        "resource": ("RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
                     "RLIMIT_SIGPENDING", "prlimit"),
        "numpy": ("float128", "complex256"),
    },
}  # fmt: skip

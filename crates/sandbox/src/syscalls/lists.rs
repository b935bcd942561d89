//! Which system calls belong together.

use libc::*;

use super::Call::{self, Any, OneOf, Own, SocketOption, StreamPair, With, Without};

/// Memory, threads, time, and the end.
#[rustfmt::skip]
pub(super) const RUNTIME: &[Call] = &[
    Any(SYS_brk), Any(SYS_munmap), Any(SYS_mremap), Any(SYS_madvise),
    Any(SYS_futex), Any(SYS_sched_yield), Any(SYS_sched_getaffinity), Any(SYS_set_robust_list), Any(SYS_rseq),
    Any(SYS_membarrier), Any(SYS_getcpu), With(SYS_clone, 0, CLONE_THREAD as u32),
    // Another filter answers that there is none.
    Any(SYS_clone3),
    Any(SYS_clock_gettime), Any(SYS_clock_getres), Any(SYS_gettimeofday), Any(SYS_nanosleep),
    Any(SYS_clock_nanosleep), Any(SYS_restart_syscall),
    Any(SYS_rt_sigaction), Any(SYS_rt_sigprocmask), Any(SYS_rt_sigreturn), Any(SYS_sigaltstack),
    Own(SYS_tgkill), Any(SYS_exit), Any(SYS_exit_group),
    Any(SYS_getpid), Any(SYS_getppid), Any(SYS_gettid), Any(SYS_getuid), Any(SYS_geteuid), Any(SYS_getgid), Any(SYS_getegid),
    Any(SYS_getrandom), Any(SYS_getrusage), Any(SYS_sysinfo), Any(SYS_uname), Own(SYS_prlimit64),
    OneOf(SYS_prctl, 0, &[PR_SET_NAME as u32, PR_GET_NAME as u32, PR_SET_VMA as u32]),
];

/// Memory that is not executed.
pub(super) const DATA: &[Call] =
    &[Without(SYS_mmap, 2, PROT_EXEC as u32), Without(SYS_mprotect, 2, PROT_EXEC as u32)];

/// Another program in the place of this one: it is loaded with its libraries, and reads files, as far as Landlock lets it.
/// `clone` is that of threads, so that no process stands beside it.
#[rustfmt::skip]
pub(super) const PROGRAM: &[Call] = &[
    Any(SYS_execve), Any(SYS_mmap), Any(SYS_mprotect), Any(SYS_set_tid_address), Any(SYS_getrlimit),
    #[cfg(target_arch = "x86_64")] Any(SYS_arch_prctl),
    Any(SYS_openat), Any(SYS_newfstatat), Any(SYS_statx), Any(SYS_faccessat), Any(SYS_faccessat2), Any(SYS_getdents64),
    Any(SYS_readlinkat), Any(SYS_getcwd), Any(SYS_pread64), Any(SYS_umask),
    #[cfg(target_arch = "x86_64")] Any(SYS_open),
    #[cfg(target_arch = "x86_64")] Any(SYS_stat),
    #[cfg(target_arch = "x86_64")] Any(SYS_lstat),
    #[cfg(target_arch = "x86_64")] Any(SYS_access),
    #[cfg(target_arch = "x86_64")] Any(SYS_readlink),
    Any(SYS_pselect6), Any(SYS_epoll_pwait2), Any(SYS_dup3), Any(SYS_pipe2),
    #[cfg(target_arch = "x86_64")] Any(SYS_select),
    #[cfg(target_arch = "x86_64")] Any(SYS_dup2),
    Any(SYS_timerfd_create), Any(SYS_timerfd_settime), Any(SYS_timerfd_gettime), Any(SYS_times),
    Any(SYS_getresuid), Any(SYS_getresgid), Any(SYS_getgroups), Any(SYS_getpgid), Any(SYS_getsid), Any(SYS_capget),
];

/// What is done with descriptors: channels of XRL, the log.
#[rustfmt::skip]
pub(super) const CHANNELS: &[Call] = &[
    Any(SYS_epoll_create1), Any(SYS_epoll_ctl), Any(SYS_epoll_pwait), Any(SYS_ppoll), Any(SYS_eventfd2),
    #[cfg(target_arch = "x86_64")] Any(SYS_epoll_wait),
    #[cfg(target_arch = "x86_64")] Any(SYS_poll),
    Any(SYS_read), Any(SYS_write), Any(SYS_readv), Any(SYS_writev), Any(SYS_close), Any(SYS_fstat), Any(SYS_dup),
    OneOf(SYS_fcntl, 1, &[
        F_DUPFD_CLOEXEC as u32, F_GETFD as u32, F_SETFD as u32, F_GETFL as u32, F_SETFL as u32,
        F_GET_SEALS as u32, F_ADD_SEALS as u32,
    ]),
    OneOf(SYS_ioctl, 1, &[FIONBIO as u32, FIONREAD as u32, TIOCOUTQ as u32, FIOCLEX as u32,
        // On which interface a link-local peer is.
        SIOCGIFINDEX as u32, SIOCGIFNAME as u32,
    ]),
    Any(SYS_recvmsg), Any(SYS_sendmsg), Any(SYS_recvfrom), Any(SYS_sendto), Any(SYS_shutdown),
    Any(SYS_getsockopt), Any(SYS_setsockopt), Any(SYS_getsockname), Any(SYS_getpeername),
    StreamPair(SYS_socketpair),
    Any(SYS_memfd_create), Any(SYS_lseek),
];

/// Options that let a socket send what is not its own, or hear what it was closed to: headers of the sender's making, sources
/// that are not ours, no filter. Nobody sets them, who has all rights either.
#[rustfmt::skip]
pub(super) const UNSET: Call = SocketOption(SYS_setsockopt, &[
    (IPPROTO_IP as u32, IP_HDRINCL as u32), (IPPROTO_IPV6 as u32, IPV6_HDRINCL as u32),
    // Raw sockets of IPv6 know it at this level, too.
    (IPPROTO_RAW as u32, IPV6_HDRINCL as u32),
    (IPPROTO_IP as u32, IP_FREEBIND as u32), (IPPROTO_IPV6 as u32, IPV6_FREEBIND as u32),
    (IPPROTO_IP as u32, IP_TRANSPARENT as u32), (IPPROTO_IPV6 as u32, IPV6_TRANSPARENT as u32),
    (SOL_SOCKET as u32, SO_DETACH_FILTER as u32),
]);

/// Sockets that were handed over, and the log of what went through them.
pub(super) const SESSIONS: &[Call] = &[Any(SYS_accept4), Any(SYS_ftruncate)];

/// Many datagrams at a time. A socket of datagrams is connected to learn which address of ours leads to another; TCP's is
/// not: Landlock forbids that.
pub(super) const DATAGRAMS: &[Call] = &[Any(SYS_sendmmsg), Any(SYS_recvmmsg), Any(SYS_connect)];

/// What makes a socket one of an address.
pub(super) const DOOR: &[Call] = &[Any(SYS_bind), Any(SYS_listen), Any(SYS_connect)];

/// Sockets of these families.
pub(super) const INTERNET: &[Call] = &[OneOf(SYS_socket, 0, &[AF_INET as u32, AF_INET6 as u32])];

/// Sockets of these families.
pub(super) const NETLINK: &[Call] =
    &[OneOf(SYS_socket, 0, &[AF_INET as u32, AF_INET6 as u32, AF_NETLINK as u32])];

/// Files, as far as Landlock lets them be opened.
#[rustfmt::skip]
pub(super) const FILES: &[Call] = &[
    Any(SYS_openat), Any(SYS_newfstatat), Any(SYS_statx), Any(SYS_faccessat), Any(SYS_faccessat2), Any(SYS_getdents64),
    Any(SYS_readlinkat), Any(SYS_getcwd), Any(SYS_pread64), Any(SYS_pwrite64), Any(SYS_copy_file_range),
    Any(SYS_fsync), Any(SYS_fdatasync), Any(SYS_flock), Any(SYS_fchmod), Any(SYS_fchmodat), Any(SYS_fchown),
    Any(SYS_renameat2), Any(SYS_unlinkat), Any(SYS_mkdirat), Any(SYS_linkat), Any(SYS_symlinkat),
    Any(SYS_utimensat), Any(SYS_umask),
    // Younger architectures have renameat2 only.
    #[cfg(not(target_arch = "riscv64"))] Any(SYS_renameat),
    #[cfg(target_arch = "x86_64")] Any(SYS_access),
    #[cfg(target_arch = "x86_64")] Any(SYS_chmod),
    #[cfg(target_arch = "x86_64")] Any(SYS_mkdir),
    #[cfg(target_arch = "x86_64")] Any(SYS_readlink),
    #[cfg(target_arch = "x86_64")] Any(SYS_rename),
    #[cfg(target_arch = "x86_64")] Any(SYS_rmdir),
    #[cfg(target_arch = "x86_64")] Any(SYS_unlink),
];

/// Places of files, and who has them to itself.
pub(super) const PLACES: &[Call] = &[Any(SYS_pread64), Any(SYS_pwrite64), Any(SYS_flock), Any(SYS_ftruncate)];

/// What nobody has any use for who routes: the kernel's code, other processes' memory, name spaces, the machine.
#[rustfmt::skip]
pub(super) const DEADLY: &[c_long] = &[
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_bpf, SYS_kexec_load, SYS_reboot,
    #[cfg(target_arch = "x86_64")] SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")] SYS_iopl,
    #[cfg(target_arch = "x86_64")] SYS_ioperm,
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_perf_event_open,
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsconfig,
    SYS_fsmount, SYS_mount_setattr, SYS_unshare, SYS_setns,
    SYS_swapon, SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog, SYS_sethostname, SYS_setdomainname,
    SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_userfaultfd, SYS_open_by_handle_at,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
];

//! Which system calls can wait or wake or change a task's attributes, by their numbers on this architecture.
//!
//! The kernel half looks a number up and knows how to read the arguments ([`Class`], as in
//! bpf/include/recorder.bpf.h).

/// How the recorder reads a system call's arguments; numbers as `enum syscall_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Read = 1,
    Write,
    ReadVector,
    WriteVector,
    Futex,
    FutexWait,
    FutexWake,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    PollMs,
    PollTimespec,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Select,
    SelectTimespec,
    EpollMs,
    EpollTimespec,
    Nanosleep,
    ClockNanosleep,
    Wait,
    Yield,
    Other,
    SetAttributes,
    SetPriority,
}

pub(super) const SYSCALLS_MAX: usize = 512;

/// Numbers that are the same on every architecture since 5.1.
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;

/// Calls that every architecture has.
const COMMON: &[(i64, Class)] = &[
    (libc::SYS_read, Class::Read),
    (libc::SYS_recvfrom, Class::Read),
    (libc::SYS_write, Class::Write),
    (libc::SYS_sendto, Class::Write),
    (libc::SYS_readv, Class::ReadVector),
    (libc::SYS_recvmsg, Class::ReadVector),
    (libc::SYS_recvmmsg, Class::ReadVector),
    (libc::SYS_writev, Class::WriteVector),
    (libc::SYS_sendmsg, Class::WriteVector),
    (libc::SYS_sendmmsg, Class::WriteVector),
    (libc::SYS_futex, Class::Futex),
    (FUTEX_WAIT, Class::FutexWait),
    (FUTEX_WAKE, Class::FutexWake),
    (libc::SYS_ppoll, Class::PollTimespec),
    (libc::SYS_pselect6, Class::SelectTimespec),
    (libc::SYS_epoll_pwait2, Class::EpollTimespec),
    (libc::SYS_nanosleep, Class::Nanosleep),
    (libc::SYS_clock_nanosleep, Class::ClockNanosleep),
    (libc::SYS_wait4, Class::Wait),
    (libc::SYS_waitid, Class::Wait),
    (libc::SYS_sched_yield, Class::Yield),
    (libc::SYS_accept, Class::Other),
    (libc::SYS_accept4, Class::Other),
    (libc::SYS_connect, Class::Other),
    (libc::SYS_fsync, Class::Other),
    (libc::SYS_fdatasync, Class::Other),
    (libc::SYS_epoll_pwait, Class::EpollMs),
    (libc::SYS_sched_setaffinity, Class::SetAttributes),
    (libc::SYS_sched_setscheduler, Class::SetAttributes),
    (libc::SYS_sched_setparam, Class::SetAttributes),
    (libc::SYS_sched_setattr, Class::SetAttributes),
    (libc::SYS_setpriority, Class::SetPriority),
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: &[(i64, Class)] = &[
    (libc::SYS_poll, Class::PollMs),
    (libc::SYS_select, Class::Select),
    (libc::SYS_epoll_wait, Class::EpollMs),
];
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: &[(i64, Class)] = &[];

/// The table as the kernel half has it.
pub(super) fn classes() -> [u8; SYSCALLS_MAX] {
    let mut table = [0; SYSCALLS_MAX];
    for &(number, class) in COMMON.iter().chain(ARCHITECTURE) {
        table[number as usize] = class as u8;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbered_as_in_the_header() {
        let header = include_str!("../../../../bpf/include/recorder.bpf.h");
        let listed = header.split("enum syscall_class {").nth(1).expect("the classes");
        let names: Vec<&str> = listed
            .split('}')
            .next()
            .expect("their end")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("CLASS_")?.split([',', ' ']).next())
            .collect();
        assert_eq!(names[Class::ClockNanosleep as usize], "CLOCK_NANOSLEEP");
        assert_eq!(names[Class::Other as usize], "OTHER");
        assert_eq!(names[Class::SetPriority as usize], "SET_PRIORITY");
        assert_eq!(classes()[libc::SYS_futex as usize], Class::Futex as u8);
    }
}

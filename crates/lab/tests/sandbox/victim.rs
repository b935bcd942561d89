//! A process of a running router in whose name a debugger makes system calls.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    libc::user_regs_struct,
    sys::{
        ptrace,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// How a system call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It did what it was asked to.
    Succeeded(i64),
    /// With this error.
    Failed(Errno),
    /// The process was ended by this signal.
    Killed(Signal),
}

/// An argument of a system call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Number(i64),
    Text(&'static str),
}

/// A process under the debugger, stopped until it is dropped.
pub(crate) struct Victim {
    pid: Pid,
    memory: File,
    /// As it was found.
    registers: user_regs_struct,
    /// Where it has the instruction `syscall`.
    gate: u64,
}

impl Victim {
    /// Stops the process.
    pub(crate) fn seize(pid: rustix::process::Pid) -> Result<Self> {
        let pid = Pid::from_raw(pid.as_raw_nonzero().get());
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let gate = gate(pid, &memory)?;
        ptrace::attach(pid).context("attaching")?;
        waitpid(pid, None)?;
        Ok(Self { pid, memory, registers: ptrace::getregs(pid)?, gate })
    }

    /// Makes a system call with up to six arguments.
    pub(crate) fn call(&self, number: i64, arguments: &[Argument]) -> Result<Outcome> {
        // Far below what it uses of its stack.
        let mut scratch = self.registers.rsp - 65_536;
        let mut values = [0; 6];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match *argument {
                Argument::Number(number) => number.cast_unsigned(),
                Argument::Text(text) => {
                    self.memory.write_all_at(format!("{text}\0").as_bytes(), scratch)?;
                    scratch += 256;
                    scratch - 256
                }
            };
        }
        let [rdi, rsi, rdx, r10, r8, r9] = values;
        let registers = user_regs_struct {
            rip: self.gate,
            rax: number.cast_unsigned(),
            // What it was stopped in is not to be begun anew with these registers.
            orig_rax: u64::MAX,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.registers
        };
        ptrace::setregs(self.pid, registers)?;
        ptrace::step(self.pid, None)?;
        match waitpid(self.pid, None)? {
            WaitStatus::Signaled(_, signal, _) => Ok(Outcome::Killed(signal)),
            WaitStatus::Stopped(..) => {
                let result = ptrace::getregs(self.pid)?.rax.cast_signed();
                ptrace::setregs(self.pid, self.registers)?;
                Ok(match result {
                    -4095..0 => Outcome::Failed(Errno::from_raw(-result as i32)),
                    result => Outcome::Succeeded(result),
                })
            }
            other => bail!("{other:?}"),
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be dead.
        let _ = ptrace::detach(self.pid, None);
    }
}

/// Looks for the instruction in what the process may execute.
fn gate(pid: Pid, memory: &File) -> Result<u64> {
    for line in
        fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().filter(|line| line.contains(" r-xp "))
    {
        let range = line.split(' ').next().and_then(|range| range.split_once('-')).context("a range")?;
        let (start, end) = (u64::from_str_radix(range.0, 16)?, u64::from_str_radix(range.1, 16)?);
        let mut code = vec![0; (end - start) as usize];
        if memory.read_exact_at(&mut code, start).is_ok()
            && let Some(place) = code.windows(2).position(|pair| pair == [0x0f, 0x05])
        {
            return Ok(start + place as u64);
        }
    }
    bail!("no system call in {pid}")
}

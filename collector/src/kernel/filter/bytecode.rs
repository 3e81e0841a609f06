//! From an expression to the program of net/ipv4/inet_diag.c's small machine.
//!
//! An operation is a struct inet_diag_bc_op: code, and how many bytes to go on when it holds (`yes`) and when not
//! (`no`). A port is compared with the `no` of a second operation behind it; an address with a struct
//! inet_diag_hostcond. Going exactly to the program's end accepts the socket, four bytes beyond rejects it. The kernel
//! checks that the `yes` steps alone lead through the whole program, and that every `no` leads onto one of them. So
//! everything here falls through when it holds.

use super::{End, Expression, Prefix};
use crate::kernel::inet_diag::{AF_INET, AF_INET6};

pub(super) const JMP: u8 = 1;
pub(super) const S_GE: u8 = 2;
pub(super) const S_LE: u8 = 3;
pub(super) const D_GE: u8 = 4;
pub(super) const D_LE: u8 = 5;
pub(super) const S_COND: u8 = 7;
pub(super) const D_COND: u8 = 8;

/// Length of struct inet_diag_bc_op, bytes.
pub(super) const OP: usize = 4;
/// Length of struct inet_diag_hostcond without its address, bytes.
pub(super) const HOST: usize = 8;

/// A place in the program that is not known yet.
#[derive(Clone, Copy)]
struct Label(usize);

const REJECT: Label = Label(0);

#[derive(Default)]
struct Compiler {
    program: Vec<u8>,
    /// Where each label stands.
    labels: Vec<usize>,
    /// Operations and the label that their `no` leads to.
    jumps: Vec<(usize, Label)>,
}

/// The program; empty when every socket matches.
pub(super) fn compile(expression: &Expression) -> Vec<u8> {
    let mut compiler = Compiler::default();
    compiler.label();
    compiler.expression(expression, REJECT);
    compiler.labels[REJECT.0] = compiler.program.len() + OP;
    compiler.link()
}

impl Compiler {
    fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = self.program.len();
    }

    fn operation(&mut self, code: u8, argument: &[u8], otherwise: Label) {
        self.jumps.push((self.program.len(), otherwise));
        let length = OP + argument.len();
        self.program.extend([code, length as u8, 0, 0]);
        self.program.extend(argument);
    }

    fn jump(&mut self, label: Label) {
        self.operation(JMP, &[], label);
    }

    /// Appends what falls through when the expression holds and goes to `otherwise` when not.
    fn expression(&mut self, expression: &Expression, otherwise: Label) {
        match expression {
            Expression::Ports { end, from, to } => {
                let (at_least, at_most) = match end {
                    End::Source => (S_GE, S_LE),
                    End::Destination => (D_GE, D_LE),
                };
                if *from > 0 {
                    self.port(at_least, *from, otherwise);
                }
                if *to < u16::MAX {
                    self.port(at_most, *to, otherwise);
                }
            }
            Expression::Prefix { end, prefix } => {
                let code = match end {
                    End::Source => S_COND,
                    End::Destination => D_COND,
                };
                self.operation(code, &host(*prefix), otherwise);
            }
            Expression::Not(inner) => {
                let holds = self.label();
                self.expression(inner, holds);
                self.jump(otherwise);
                self.place(holds);
            }
            Expression::All(parts) => {
                for part in parts {
                    self.expression(part, otherwise);
                }
            }
            Expression::Any(parts) => {
                let holds = self.label();
                let Some((last, before)) = parts.split_last() else {
                    return self.jump(otherwise);
                };
                for part in before {
                    let next = self.label();
                    self.expression(part, next);
                    self.jump(holds);
                    self.place(next);
                }
                self.expression(last, otherwise);
                self.place(holds);
            }
        }
    }

    fn port(&mut self, code: u8, port: u16, otherwise: Label) {
        let [low, high] = port.to_ne_bytes();
        self.operation(code, &[0, 0, low, high], otherwise);
    }

    fn link(mut self) -> Vec<u8> {
        for (at, label) in self.jumps {
            let distance = self.labels[label.0] - at;
            self.program[at + 2..at + 4].copy_from_slice(&(distance as u16).to_ne_bytes());
        }
        self.program
    }
}

/// struct inet_diag_hostcond for any port.
fn host(prefix: Prefix) -> Vec<u8> {
    let (family, length, address) = match prefix {
        Prefix::V4(network, length) => (AF_INET, length, network.octets().to_vec()),
        Prefix::V6(network, length) => (AF_INET6, length, network.octets().to_vec()),
    };
    let mut bytes = vec![family, length, 0, 0];
    bytes.extend((-1_i32).to_ne_bytes());
    bytes.extend(address);
    bytes
}

/// The longest condition is an IPv6 prefix. After each there is at most one jump of `or`; and since nothing is negated
/// twice, there are at most twice as many jumps of `not` as conditions.
const LONGEST: usize = super::CONDITIONS_LIMIT * (OP + HOST + 16 + 3 * OP);
const _: () = assert!(
    LONGEST + 2 * OP < u16::MAX as usize,
    "every distance and the attribute's length must fit 16 bits"
);

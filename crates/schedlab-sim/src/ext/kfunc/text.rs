//! Messages of the scheduler: errors, exits, dumps.

use super::super::consts::{SCX_EXIT_ERROR_BPF, SCX_EXIT_UNREG_BPF};
use super::super::exit;
use super::super::host::{Cx, Host};
use schedlab_bpf::exec::KfuncTable;

/// `MAX_BPRINTF_VARARGS` words of 8 bytes.
const DATA_BYTES_MAX: u64 = 12 * 8;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("scx_bpf_exit_bstr", exit_bstr);
    table.add("scx_bpf_error_bstr", error_bstr);
    table.add("scx_bpf_dump_bstr", dump_bstr);
}

fn format(cx: &mut Cx<'_>, format: u64, data: u64, bytes: u64) -> Option<String> {
    let bytes = bytes & 0xffff_ffff;
    if !bytes.is_multiple_of(8) || bytes > DATA_BYTES_MAX || (bytes > 0 && data == 0) {
        exit::error(cx, format!("invalid data={data:#x} and data__sz={bytes}"));
        return None;
    }
    Some(cx.format(format, data, bytes))
}

fn exit_bstr(cx: &mut Cx<'_>, code: u64, text: u64, data: u64, bytes: u64) {
    if let Some(message) = format(cx, text, data, bytes) {
        let cpu = cx.cpu() as i32;
        cx.host().claim_exit(SCX_EXIT_UNREG_BPF, code as i64, cpu, message);
    }
}

fn error_bstr(cx: &mut Cx<'_>, text: u64, data: u64, bytes: u64) {
    if let Some(message) = format(cx, text, data, bytes) {
        let cpu = cx.cpu() as i32;
        cx.host().claim_exit(SCX_EXIT_ERROR_BPF, 0, cpu, message);
    }
}

/// Only the dump callbacks have somewhere to write to.
fn dump_bstr(cx: &mut Cx<'_>, text: u64, data: u64, bytes: u64) {
    if !cx.host().dumping {
        let said = "scx_bpf_dump() must only be called from ops.dump() and friends";
        return exit::error(cx, said.to_owned());
    }
    if let Some(text) = format(cx, text, data, bytes)
        && let Some(dump) = cx.host().dump.as_deref_mut()
    {
        dump.add(&text);
    }
}

//! A terminal's settings as SSH writes them: opcodes of RFC 4254 section 8, and 42 of RFC 8160.

use std::io;

use rustix::fd::AsFd;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// What a special character is that SSH calls 255: none.
const SSH_DISABLED: u32 = 255;
const DISABLED: u8 = 0;

/// Gives `tty` what `modes` say; opcodes that mean nothing here have no effect.
pub(super) fn apply(tty: impl AsFd, modes: &[(u8, u32)]) -> io::Result<()> {
    if modes.is_empty() {
        return Ok(());
    }
    let mut termios = tcgetattr(&tty)?;
    for (opcode, value) in modes {
        set(&mut termios, *opcode, *value);
    }
    Ok(tcsetattr(&tty, OptionalActions::Now, &termios)?)
}

fn set(termios: &mut Termios, opcode: u8, value: u32) {
    let on = value != 0;
    if let Some(index) = special(opcode) {
        let character = if value == SSH_DISABLED { DISABLED } else { u8::try_from(value).unwrap_or(DISABLED) };
        termios.special_codes[index] = character;
    } else if let Some(mode) = input(opcode) {
        termios.input_modes.set(mode, on);
    } else if let Some(mode) = local(opcode) {
        termios.local_modes.set(mode, on);
    } else if let Some(mode) = output(opcode) {
        termios.output_modes.set(mode, on);
    } else {
        set_line(termios, opcode, value);
    }
}

/// What would matter if there were a line. A speed that the kernel does not know stays as it is.
fn set_line(termios: &mut Termios, opcode: u8, value: u32) {
    let control = &mut termios.control_modes;
    match opcode {
        90 | 91 if value != 0 => {
            control.remove(ControlModes::CSIZE);
            control.insert(if opcode == 90 { ControlModes::CS7 } else { ControlModes::CS8 });
        }
        92 => control.set(ControlModes::PARENB, value != 0),
        93 => control.set(ControlModes::PARODD, value != 0),
        128 => termios.set_input_speed(value).unwrap_or_default(),
        129 => termios.set_output_speed(value).unwrap_or_default(),
        _ => {}
    }
}

const fn special(opcode: u8) -> Option<SpecialCodeIndex> {
    Some(match opcode {
        1 => SpecialCodeIndex::VINTR,
        2 => SpecialCodeIndex::VQUIT,
        3 => SpecialCodeIndex::VERASE,
        4 => SpecialCodeIndex::VKILL,
        5 => SpecialCodeIndex::VEOF,
        6 => SpecialCodeIndex::VEOL,
        7 => SpecialCodeIndex::VEOL2,
        8 => SpecialCodeIndex::VSTART,
        9 => SpecialCodeIndex::VSTOP,
        10 => SpecialCodeIndex::VSUSP,
        12 => SpecialCodeIndex::VREPRINT,
        13 => SpecialCodeIndex::VWERASE,
        14 => SpecialCodeIndex::VLNEXT,
        16 => SpecialCodeIndex::VSWTC,
        18 => SpecialCodeIndex::VDISCARD,
        _ => return None,
    })
}

const fn input(opcode: u8) -> Option<InputModes> {
    Some(match opcode {
        30 => InputModes::IGNPAR,
        31 => InputModes::PARMRK,
        32 => InputModes::INPCK,
        33 => InputModes::ISTRIP,
        34 => InputModes::INLCR,
        35 => InputModes::IGNCR,
        36 => InputModes::ICRNL,
        37 => InputModes::IUCLC,
        38 => InputModes::IXON,
        39 => InputModes::IXANY,
        40 => InputModes::IXOFF,
        41 => InputModes::IMAXBEL,
        42 => InputModes::IUTF8,
        _ => return None,
    })
}

const fn local(opcode: u8) -> Option<LocalModes> {
    Some(match opcode {
        50 => LocalModes::ISIG,
        51 => LocalModes::ICANON,
        52 => LocalModes::XCASE,
        53 => LocalModes::ECHO,
        54 => LocalModes::ECHOE,
        55 => LocalModes::ECHOK,
        56 => LocalModes::ECHONL,
        57 => LocalModes::NOFLSH,
        58 => LocalModes::TOSTOP,
        59 => LocalModes::IEXTEN,
        60 => LocalModes::ECHOCTL,
        61 => LocalModes::ECHOKE,
        62 => LocalModes::PENDIN,
        _ => return None,
    })
}

const fn output(opcode: u8) -> Option<OutputModes> {
    Some(match opcode {
        70 => OutputModes::OPOST,
        71 => OutputModes::OLCUC,
        72 => OutputModes::ONLCR,
        73 => OutputModes::OCRNL,
        74 => OutputModes::ONOCR,
        75 => OutputModes::ONLRET,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pty::open_pair;

    fn after(modes: &[(u8, u32)]) -> Termios {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        let (_ours, theirs) = open_pair(crate::channel::program::size(Default::default())).unwrap();
        apply(&theirs, modes).unwrap();
        tcgetattr(&theirs).unwrap()
    }

    #[test]
    fn every_kind_of_mode_is_applied_and_the_others_stay() {
        let before = after(&[]);
        assert!(before.input_modes.contains(InputModes::IUTF8) && before.local_modes.contains(LocalModes::ECHO));
        let changed = after(&[(1, 7), (3, 255), (42, 0), (53, 0), (72, 0), (90, 1), (128, 38_400), (129, 38_400)]);
        assert_eq!(changed.special_codes[SpecialCodeIndex::VINTR], 7);
        assert_eq!(changed.special_codes[SpecialCodeIndex::VERASE], DISABLED);
        assert_eq!(changed.special_codes[SpecialCodeIndex::VEOF], before.special_codes[SpecialCodeIndex::VEOF]);
        assert!(!changed.input_modes.contains(InputModes::IUTF8) && !changed.local_modes.contains(LocalModes::ECHO));
        assert!(
            !changed.output_modes.contains(OutputModes::ONLCR) && changed.output_modes.contains(OutputModes::OPOST)
        );
        assert_eq!((changed.input_speed(), changed.output_speed()), (38_400, 38_400));
    }

    #[test]
    fn what_means_nothing_here_changes_nothing() {
        let (before, changed) = (after(&[]), after(&[(0, 1), (11, 1), (17, 1), (99, 1), (255, u32::MAX)]));
        assert_eq!(changed.local_modes, before.local_modes);
        assert_eq!(changed.input_modes, before.input_modes);
        assert_eq!(changed.control_modes, before.control_modes);
    }
}

//! Where each field stands, as the figures of the specification have it.

use std::mem::offset_of;

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::status::Status;

/// `Structure { field: byte offset, … }`.
macro_rules! offsets {
    ($($type:ident { $($field:ident: $offset:expr),* $(,)? })*) => {
        $($(assert_eq!(offset_of!($type, $field), $offset, concat!(stringify!($type), ".", stringify!($field)));)*)*
    };
}

#[test]
fn pdu_headers() {
    offsets! {
        CommonHeader { kind: 0, flags: 1, header_len: 2, data_offset: 3, len: 4 }
        IcReq { common: 0, version: 8, alignment: 10, r2t_max: 12 }
        IcResp { common: 0, version: 8, alignment: 10, h2c_data_max: 12 }
        TermReq { common: 0, fes: 8, fei: 10 }
        H2cData { common: 0, cccid: 8, ttag: 10, offset: 12, len: 16 }
        C2hData { common: 0, cccid: 8, offset: 12, len: 16 }
        R2t { common: 0, cccid: 8, ttag: 10, offset: 12, len: 16 }
    }
    for (header, data, byte) in [(false, false, 0), (true, false, 1), (false, true, 2), (true, true, 3)] {
        assert_eq!(IcReq::new(header, data).as_bytes()[11], byte);
        assert_eq!(IcResp::new(header, data, 4096).as_bytes()[11], byte);
        assert_eq!((IcReq::new(header, data).header_digest(), IcReq::new(header, data).data_digest()), (header, data));
        let response = IcResp::new(header, data, 4096);
        assert_eq!((response.header_digest(), response.data_digest()), (header, data));
    }
    let kinds = [
        (PduKind::IcReq, 0, 128),
        (PduKind::IcResp, 1, 128),
        (PduKind::H2cTermReq, 2, 24),
        (PduKind::C2hTermReq, 3, 24),
        (PduKind::CapsuleCmd, 4, 72),
        (PduKind::CapsuleResp, 5, 24),
        (PduKind::H2cData, 6, 24),
        (PduKind::C2hData, 7, 24),
        (PduKind::R2t, 9, 24),
    ];
    for (kind, byte, header_len) in kinds {
        assert_eq!(PduKind::from_byte(byte), Some(kind));
        assert_eq!((kind as u8, kind.header_len()), (byte, header_len));
    }
    assert_eq!(PduKind::from_byte(8), None);
    for fes in 0..10 {
        let error = FatalError::from_fields(fes, 7);
        let fei = if fes == 1 || fes == 6 { 7 } else { 0 };
        assert_eq!(error.to_fields(), (fes, fei));
    }
}

#[test]
fn identify_structures() {
    offsets! {
        IdentifyController {
            pci_vendor: 0, pci_subsystem_vendor: 2, serial: 4, model: 24, firmware: 64, arbitration_burst: 72,
            ieee_oui: 73, multi_path: 76, transfer_max_exponent: 77, controller_id: 78, version: 80,
            rtd3_resume_us: 84, rtd3_entry_us: 88, async_events: 92, attributes: 96, controller_type: 111,
            fru_guid: 112, retry_delay_100ms: 128, reachability: 134, subsystem_report: 253, vpd_write_cycles: 254,
            management_endpoints: 255, optional_admin_commands: 256, abort_limit: 258, async_event_limit: 259,
            firmware_updates: 260, log_attributes: 261, error_log_entries: 262, power_states: 263,
            warning_temperature_k: 266, critical_temperature_k: 268, capacity_total: 280, capacity_unallocated: 296,
            keep_alive_100ms: 320, ana_transition_s: 342, ana_capabilities: 343, ana_group_max: 344, ana_groups: 348,
            sq_entry_size: 512, cq_entry_size: 513, commands_max: 514, namespaces_max: 516,
            optional_nvm_commands: 520, fused_operations: 522, format_attributes: 524, volatile_write_cache: 525,
            atomic_write_normal: 526, atomic_write_power_fail: 528, vendor_command_format: 530, write_protection: 531,
            atomic_compare_write: 532, copy_formats: 534, sgl_support: 536, allowed_namespaces: 540,
            subsystem_nqn: 768, io_command_capsule_16: 1792, io_response_capsule_16: 1796, in_capsule_offset_16: 1800,
            fabrics_attributes: 1802, sgl_descriptors_max: 1803, optional_fabrics_commands: 1804,
            discovery_type: 1806, power_state0_centiwatts: 2048,
        }
        LbaFormat { metadata_len: 0, block_shift: 2 }
        IdentifyNamespace {
            size: 0, capacity: 8, utilization: 16, features: 24, formats: 25, format_in_use: 26, metadata: 27,
            protection_capabilities: 28, protection: 29, sharing: 30, reservations: 31, format_progress: 32,
            deallocation: 33, atomicity: 34, optimal_boundary: 46, capacity_bytes: 48, write_granularity: 64,
            write_alignment: 66, deallocate_granularity: 68, deallocate_alignment: 70, optimal_write: 72,
            copy_range_blocks_max: 74, copy_blocks_max: 76, copy_ranges_max: 80, ana_group: 92, attributes: 99,
            nvm_set: 100, endurance_group: 102, nguid: 104, eui64: 120, lba_formats: 128,
        }
        IndependentNamespace {
            features: 0, sharing: 1, reservations: 2, format_progress: 3, ana_group: 4, attributes: 8, nvm_set: 10,
            endurance_group: 12, status: 14, key_per_io: 15, key_tag_max: 16, reachability_group: 20,
        }
        NvmControllerLimits {
            verify_exponent: 0, write_zeroes_exponent: 1, write_uncorrectable_exponent: 2, dsm_ranges: 3,
            dsm_range_blocks: 4, dsm_blocks: 8,
        }
        ControllerList { count: 0, ids: 2 }
    }
    let mut namespace = IdentifyNamespace::zeroed();
    namespace.lba_formats[0x21] = LbaFormat::new(12);
    namespace.format_in_use = 0x41;
    assert_eq!(namespace.lba_format(), LbaFormat::new(12), "bits 6:5 are the high bits of the format");
    assert!(CopyFormats(0b101).contains(2) && !CopyFormats(0b101).contains(1) && !CopyFormats(0xffff).contains(16));
}

#[test]
fn logs_features_and_fabrics() {
    offsets! {
        ErrorEntry {
            count: 0, queue_id: 8, cid: 10, location: 14, lba: 16, nsid: 24, vendor_page: 28, transport: 29, csi: 30,
            opcode: 31, command_specific: 32, transport_specific: 40, version: 63,
        }
        SmartLog {
            critical_warning: 0, temperature_k: 1, spare_percent: 3, spare_threshold_percent: 4, used_percent: 5,
            endurance_warning: 6, data_units_read: 32, data_units_written: 48, read_commands: 64, write_commands: 80,
            busy_minutes: 96, power_cycles: 112, power_on_hours: 128, unsafe_shutdowns: 144, media_errors: 160,
            error_entries: 176, warning_minutes: 192, critical_minutes: 196,
        }
        FirmwareSlotLog { active: 0, revisions: 8 }
        AnaHeader { changes: 0, groups: 8 }
        AnaGroup { group: 0, namespaces: 4, changes: 8, state: 16 }
        EffectsLog { admin: 0, io: 1024 }
        HostBehavior {
            advanced_retry: 0, telemetry_area_4: 1, extended_lba_formats: 2, dispersed_namespaces: 3,
        }
        ConnectData { host_id: 0, controller_id: 16, subsystem_nqn: 256, host_nqn: 512 }
        DiscoveryHeader { generation: 0, records: 8, record_format: 16 }
        DiscoveryEntry {
            transport: 0, address_family: 1, kind: 2, requirements: 3, port_id: 4, controller_id: 6, admin_entries: 8,
            flags: 10, service: 32, nqn: 256, address: 512, transport_specific: 768,
        }
        DsmRange { attributes: 0, blocks: 4, slba: 8 }
        RegisterData { current_key: 0, new_key: 8 }
        AcquireData { current_key: 0, preempted_key: 8 }
        ReservationStatus { generation: 0, kind: 4, registrants: 5, persists: 9 }
        ReservationRegistrant { controller_id: 0, status: 2, key: 8, host_id: 16 }
        ReservationPage { count: 0, kind: 8, more: 9, nsid: 12 }
        CopySourceEntry {
            snsid: 0, slba: 8, options: 22, reference_tag: 24, application_tag: 28, application_tag_mask: 30,
        }
    }
    assert_eq!(CopySourceEntry::new(1, 2, 0x304).as_bytes()[16..18], [0x03, 0x03], "NLB is 0's based, at byte 16");
    assert_eq!(ErrorEntry::new(1, 2, 3, Status::INVALID_FIELD).as_bytes()[12..14], [0x04, 0x00]);
    let mut bytes = [0; 512];
    bytes[4] = 0b100;
    let behavior = HostBehavior::read_from_bytes(&bytes).unwrap();
    assert!(
        behavior.copy_format(0) && behavior.copy_format(2) && !behavior.copy_format(3) && !behavior.copy_format(16)
    );
}

/// Sets every bit of a field of a command and shows where in the entry it stands.
fn changed(sqe: Sqe) -> Vec<(usize, u8)> {
    let blank = Sqe::new(sqe.opcode(), 0);
    let pairs = blank.as_bytes().iter().zip(sqe.as_bytes()).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, (_, byte))| (at, *byte)).collect()
}

#[test]
fn submission_queue_entries() {
    let mut sqe = Sqe::new(0x7e, 0x0403_0201);
    sqe.set_cid(0xbbaa);
    sqe.set_sgl(Sgl::raw(0x1817_1615_1413_1211, 0x2423_2221, 0x5a));
    let mut want = [0; 64];
    want[0] = 0x7e;
    want[1] = 0x40;
    want[2..8].copy_from_slice(&[0xaa, 0xbb, 1, 2, 3, 4]);
    want[24..36].copy_from_slice(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24]);
    want[39] = 0x5a;
    assert_eq!(sqe.as_bytes(), want);
    assert_eq!((sqe.opcode(), sqe.cid(), sqe.nsid(), sqe.psdt(), sqe.fuse()), (0x7e, 0xbbaa, 0x0403_0201, 1, 0));
    assert_eq!(sqe.with_flags(0x82).psdt(), 2);
    assert_eq!(sqe.with_flags(0x82).fuse(), 2);
    for (n, at) in [(2, 8), (3, 12), (10, 40), (11, 44), (12, 48), (13, 52), (14, 56), (15, 60)] {
        let bytes = Sqe::new(0, 0).with_dword(n, 0x8421_1248);
        assert_eq!(bytes.as_bytes()[at..at + 4], [0x48, 0x12, 0x21, 0x84], "dword {n}");
        assert_eq!(bytes.dword(n), 0x8421_1248);
    }
    assert_eq!((Sgl::in_capsule(7).kind(), Sgl::transport(7).kind()), (SglKind::InCapsule, SglKind::Transport));
    assert_eq!(Sgl::raw(0, 0, 0x40).kind(), SglKind::Other(0x40));
}

#[test]
fn fields_of_commands() {
    type Case = (&'static str, Sqe, &'static [(usize, u8)]);
    let cases: &[Case] = &[
        (
            "SLBA, NLB",
            Sqe::read(0, 0x0807_0605_0403_0201, 0x0b0a + 1),
            &[(40, 1), (41, 2), (42, 3), (43, 4), (44, 5), (45, 6), (46, 7), (47, 8), (48, 0x0a), (49, 0x0b)],
        ),
        ("65,536 blocks", Sqe::write(0, 0, 65_536), &[(48, 0xff), (49, 0xff)]),
        ("FUA", Sqe::write(0, 0, 1).with_fua(), &[(51, 0x40)]),
        ("DEAC", Sqe::write_zeroes(0, 0, 1, true), &[(51, 0x02)]),
        ("NR, AD", Sqe::deallocate(0, 256), &[(40, 0xff), (44, 0x04)]),
        ("NR, DESFMT", Sqe::copy(0, 0, 256, 2), &[(48, 0xff), (49, 0x02)]),
        ("CNS, CSI", Sqe::identify(0x1c, 0, 0x04), &[(40, 0x1c), (47, 0x04)]),
        (
            "LID, RAE, NUMD, LPO, CSI",
            Sqe::get_log_page(0x70, 0x0102, (0x0003_0201 + 1) * 4, 4, true),
            &[(40, 0x70), (41, 0x80), (42, 0x01), (43, 0x02), (44, 0x03), (48, 0x02), (49, 0x01), (59, 0x04)],
        ),
        ("SQID, CID", Sqe::abort(0x0201, 0x0403), &[(40, 1), (41, 2), (42, 3), (43, 4)]),
        ("FID, value", Sqe::set_features(7, 0x0403_0201), &[(40, 7), (44, 1), (45, 2), (46, 3), (47, 4)]),
        ("FID, SEL", Sqe::get_features(7, 3), &[(40, 7), (41, 3)]),
        (
            "QID, SQSIZE, CATTR, KATO",
            Sqe::connect(0x0201, 0x0403 + 1, true, 0x0807_0605),
            &[(4, 1), (42, 1), (43, 2), (44, 3), (45, 4), (46, 0x04), (48, 5), (49, 6), (50, 7), (51, 8)],
        ),
        ("Property Get", Sqe::property_get(0x14, true), &[(4, 4), (40, 1), (44, 0x14)]),
        ("Property Set", Sqe::property_set(0x14, false, 0x0201), &[(44, 0x14), (48, 1), (49, 2)]),
        ("Disconnect", Sqe::disconnect(), &[(4, 8)]),
    ];
    for (name, sqe, want) in cases {
        assert_eq!(changed(*sqe), *want, "{name}");
    }
    let read = Sqe::read(0, 5, 9).with_fua();
    assert_eq!((read.slba(), read.blocks(), read.fua()), (5, 9, true));
    assert!(Sqe::write_zeroes(0, 0, 1, true).write_zeroes_deallocate());
    assert_eq!((Sqe::deallocate(0, 3).dsm_ranges(), Sqe::deallocate(0, 3).dsm_deallocate()), (3, true));
    assert_eq!((Sqe::copy(0, 0, 3, 2).copy_ranges(), Sqe::copy(0, 0, 3, 2).copy_format()), (3, 2));
    let log = Sqe::get_log_page(0x70, 1 << 33, 0x0030_0000, 4, true);
    assert_eq!((log.log_page(), log.log_len(), log.log_offset(), log.log_csi()), (0x70, 0x30_0000, 1 << 33, 4));
    assert!(log.log_retains_event() && !log.log_offset_is_index());
    assert!(log.with_bits(14, 23, 1, 1).log_offset_is_index());
    let identify = Sqe::identify(0x12, 1, 4).with_bits(10, 16, 16, 0x0506);
    assert_eq!((identify.identify_cns(), identify.identify_csi(), identify.identify_controller()), (0x12, 4, 0x0506));
    let connect = Sqe::connect(3, 32, true, 5000).with_bits(10, 0, 16, 1);
    assert_eq!((connect.connect_queue_id(), connect.connect_sqsize(), connect.connect_record_format()), (3, 31, 1));
    assert_eq!((connect.connect_disables_flow_control(), connect.connect_keep_alive_ms()), (true, 5000));
    let set = Sqe::property_set(0x14, true, 1 << 40);
    assert_eq!((set.property_offset(), set.property_size(), set.property_value()), (0x14, 1, 1 << 40));
    assert_eq!((Sqe::abort(1, 2).abort_queue(), Sqe::abort(1, 2).abort_cid()), (1, 2));
    let features = Sqe::get_features(7, 3).with_bits(10, 31, 1, 1);
    assert_eq!((features.feature_id(), features.feature_select(), features.feature_save()), (7, 3, true));
}

#[test]
fn completion_queue_entries() {
    let cqe = Cqe::new(0x0807, Status::INVALID_FIELD.dnr(), 0x0807_0605_0403_0201).with_sqhd(0x0a09);
    assert_eq!(cqe.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x0a, 0, 0, 7, 8, 0x04, 0x80]);
    assert_eq!((cqe.cid(), cqe.sqhd(), cqe.result()), (0x0807, 0x0a09, 0x0807_0605_0403_0201));
    assert_eq!(cqe.status(), Status::INVALID_FIELD.dnr());
}

/// `Register: with_field(value) == bits, …`, and that the getter gives the value back.
macro_rules! register_fields {
    ($($type:ident: $($get:ident / $with:ident($value:expr) == $bits:expr),* $(,)?;)*) => {
        $($(
            assert_eq!($type::default().$with($value), $type($bits), stringify!($get));
            assert_eq!($type($bits).$get(), $value, stringify!($get));
            assert_eq!($type(!0).$with(0), $type(!$bits), stringify!($get));
        )*)*
    };
}

#[test]
fn properties() {
    register_fields! {
        Cap:
            mqes / with_mqes(0xffff) == 0xffff, cqr / with_cqr(1) == 1 << 16, to / with_to(0xff) == 0xff << 24,
            css_nvm / with_css_nvm(1) == 1 << 37, css_multiple / with_css_multiple(1) == 1 << 43,
            css_admin_only / with_css_admin_only(1) == 1 << 44, mpsmin / with_mpsmin(15) == 15 << 48,
            mpsmax / with_mpsmax(15) == 15 << 52, crms_with_media / with_crms_with_media(1) == 1 << 59;
        Version: major / with_major(0xffff) == 0xffff_0000, minor / with_minor(0xff) == 0xff00,
            tertiary / with_tertiary(0xff) == 0xff;
        Cc: enable / with_enable(1) == 1, css / with_css(7) == 7 << 4, mps / with_mps(15) == 15 << 7,
            ams / with_ams(7) == 7 << 11, shutdown / with_shutdown(3) == 3 << 14, iosqes / with_iosqes(15) == 15 << 16,
            iocqes / with_iocqes(15) == 15 << 20;
        Csts: ready / with_ready(1) == 1, fatal / with_fatal(1) == 2, shutdown / with_shutdown(3) == 3 << 2;
    }
    assert_eq!(ConnectError::InData(256).to_result(), 0x1_0100);
    for error in [ConnectError::InData(256), ConnectError::InCommand(42)] {
        assert_eq!(ConnectError::from_result(error.to_result()), error);
    }
}

//! Operations that eBPF has no instructions for become calls that the sandbox lowers to single instructions: arithmetic,
//! comparisons and conversions of `double` and `float`; long copies and fills become calls of helpers.
//!
//! Every operation has the semantics of the function of `diskside.h` that it becomes: rounding to nearest, one NaN,
//! nothing fused or reordered, whatever fast-math flags a module brings. A conversion to an integer truncates and
//! saturates at 64 bits, NaN gives 0, and a narrower integer has the low bits of that.

use llvm_sys::core::*;
use llvm_sys::debuginfo::LLVMInstructionGetDebugLoc;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode as Op, LLVMRealPredicate as Real, LLVMTypeKind as Kind};
use std::ffi::{CStr, CString};

/// Copies and fills of up to this many bytes are instructions.
const INLINE_LEN_MAX: u64 = 128;

/// Lowers a module.
///
/// # Errors
/// The operation that cannot be lowered, with its place in the source.
///
/// # Safety
/// The module is whole and of this context.
pub(crate) unsafe fn lower(context: LLVMContextRef, module: LLVMModuleRef) -> Result<(), String> {
    // SAFETY: types and a builder of the caller's context; instructions are collected before any is replaced.
    unsafe {
        let pass = Pass {
            context,
            module,
            builder: LLVMCreateBuilderInContext(context),
            i1: LLVMInt1TypeInContext(context),
            i32: LLVMInt32TypeInContext(context),
            i64: LLVMInt64TypeInContext(context),
            f64: LLVMDoubleTypeInContext(context),
            pointer: LLVMPointerTypeInContext(context, 0),
        };
        for instruction in instructions(module) {
            let Some(value) = pass.replacement(instruction)? else { continue };
            if LLVMGetTypeKind(LLVMTypeOf(instruction)) != Kind::LLVMVoidTypeKind {
                LLVMReplaceAllUsesWith(instruction, value);
            }
            LLVMInstructionEraseFromParent(instruction);
        }
        Ok(())
    }
}

/// Says of loads, stores and short copies that they are aligned: the sandbox loads and stores at any address, and the
/// back end would otherwise take bytes one by one.
///
/// # Safety
/// The module is whole.
pub(crate) unsafe fn align_accesses(module: LLVMModuleRef) {
    // SAFETY: each instruction is asked for what instructions of its kind have.
    unsafe {
        for instruction in instructions(module) {
            match LLVMGetInstructionOpcode(instruction) {
                Op::LLVMLoad => align(instruction, LLVMTypeOf(instruction)),
                Op::LLVMStore => align(instruction, LLVMTypeOf(LLVMGetOperand(instruction, 0))),
                Op::LLVMCall => match memory_intrinsic(instruction) {
                    Some("llvm.memset") => LLVMSetInstrParamAlignment(instruction, 1, 8),
                    Some(_) => {
                        LLVMSetInstrParamAlignment(instruction, 1, 8);
                        LLVMSetInstrParamAlignment(instruction, 2, 8);
                    }
                    None => {}
                },
                _ => {}
            }
        }
    }
}

/// # Safety
/// A load or store of a value of this type.
unsafe fn align(access: LLVMValueRef, ty: LLVMTypeRef) {
    // SAFETY: the caller's promise.
    unsafe {
        let natural = match LLVMGetTypeKind(ty) {
            Kind::LLVMIntegerTypeKind => LLVMGetIntTypeWidth(ty).div_ceil(8),
            Kind::LLVMFloatTypeKind => 4,
            Kind::LLVMDoubleTypeKind | Kind::LLVMPointerTypeKind => 8,
            _ => return,
        };
        if [2, 4, 8].contains(&natural) && LLVMGetAlignment(access) < natural {
            LLVMSetAlignment(access, natural);
        }
    }
}

/// # Safety
/// The module is whole.
unsafe fn instructions(module: LLVMModuleRef) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: lists are walked from their first to their last.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            let mut block = LLVMGetFirstBasicBlock(function);
            while !block.is_null() {
                let mut instruction = LLVMGetFirstInstruction(block);
                while !instruction.is_null() {
                    all.push(instruction);
                    instruction = LLVMGetNextInstruction(instruction);
                }
                block = LLVMGetNextBasicBlock(block);
            }
            function = LLVMGetNextFunction(function);
        }
    }
    all
}

/// The name of the function that is called, if it has one.
///
/// # Safety
/// It is a call.
unsafe fn callee<'m>(call: LLVMValueRef) -> Option<&'m str> {
    // SAFETY: the caller's promise; names live as long as the module.
    unsafe {
        let function = LLVMIsAFunction(LLVMGetCalledValue(call));
        if function.is_null() {
            return None;
        }
        let mut len = 0;
        let name = LLVMGetValueName2(function, &mut len);
        std::str::from_utf8(std::slice::from_raw_parts(name.cast(), len)).ok()
    }
}

/// Which of the intrinsics that copy and fill a call is, of those with lengths of 64 bits.
///
/// # Safety
/// It is a call.
unsafe fn memory_intrinsic(call: LLVMValueRef) -> Option<&'static str> {
    // SAFETY: the caller's promise.
    let name = unsafe { callee(call) }?;
    ["llvm.memcpy", "llvm.memmove", "llvm.memset"]
        .into_iter()
        .find(|stem| name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('.') || rest.starts_with(".inline.")))
}

/// A floating-point type that is lowered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Float {
    F32,
    F64,
}

impl Float {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

struct Pass {
    context: LLVMContextRef,
    module: LLVMModuleRef,
    builder: LLVMBuilderRef,
    i1: LLVMTypeRef,
    i32: LLVMTypeRef,
    i64: LLVMTypeRef,
    f64: LLVMTypeRef,
    pointer: LLVMTypeRef,
}

type Replacement = Result<Option<LLVMValueRef>, String>;

impl Pass {
    /// The replacement of an instruction, built before it; nothing for one that stays.
    ///
    /// # Safety
    /// It is an instruction of the module.
    unsafe fn replacement(&self, at: LLVMValueRef) -> Replacement {
        // SAFETY: operands are those that instructions of a kind have in a verified module.
        unsafe {
            LLVMPositionBuilderBefore(self.builder, at);
            LLVMSetCurrentDebugLocation2(self.builder, LLVMInstructionGetDebugLoc(at));
            let operation = match LLVMGetInstructionOpcode(at) {
                Op::LLVMFAdd => "add",
                Op::LLVMFSub => "sub",
                Op::LLVMFMul => "mul",
                Op::LLVMFDiv => "div",
                Op::LLVMFRem => {
                    return Err(self.refusal(
                        at,
                        "there is no remainder of floating-point numbers (fmod): write \
                                                 x - y * trunc(x / y), which rounds twice",
                    ));
                }
                Op::LLVMFCmp => return self.comparison(at).map(Some),
                Op::LLVMSIToFP | Op::LLVMUIToFP => return self.integer_to_float(at).map(Some),
                Op::LLVMFPToSI | Op::LLVMFPToUI => return self.float_to_integer(at).map(Some),
                Op::LLVMFPExt | Op::LLVMFPTrunc => return self.resized(at).map(Some),
                Op::LLVMAtomicRMW if self.is_floating(LLVMTypeOf(at)) => {
                    return Err(self.refusal(at, "there are no atomic operations on floating-point numbers"));
                }
                Op::LLVMCall => return self.call_of(at),
                _ => return Ok(None),
            };
            let float = self.float(at, LLVMTypeOf(at))?;
            self.apply(at, float, operation, &[LLVMGetOperand(at, 0), LLVMGetOperand(at, 1)]).map(Some)
        }
    }

    /// # Safety
    /// As `replacement`, of a comparison.
    unsafe fn comparison(&self, at: LLVMValueRef) -> Result<LLVMValueRef, String> {
        // SAFETY: a comparison has two operands of one type.
        unsafe {
            let (a, b) = (LLVMGetOperand(at, 0), LLVMGetOperand(at, 1));
            let float = self.float(at, LLVMTypeOf(a))?;
            let is = |operation: &str, a, b| -> Result<LLVMValueRef, String> {
                let result = self.call(
                    at,
                    &format!("ds_{}_{operation}", float.name()),
                    self.i64,
                    &[self.bits(a), self.bits(b)],
                )?;
                Ok(LLVMBuildTrunc(self.builder, result, self.i1, c"".as_ptr()))
            };
            let not = |value| LLVMBuildNot(self.builder, value, c"".as_ptr());
            // A constant that is a number needs no question.
            let is_number = |value: LLVMValueRef| -> bool {
                let mut lossy = 0;
                !LLVMIsAConstantFP(value).is_null() && !LLVMConstRealGetDouble(value, &mut lossy).is_nan()
            };
            let ordered = |a, b| -> Result<LLVMValueRef, String> {
                if is_number(b) {
                    is("eq", a, a)
                } else if is_number(a) || a == b {
                    is("eq", b, b)
                } else {
                    Ok(LLVMBuildAnd(self.builder, is("eq", a, a)?, is("eq", b, b)?, c"".as_ptr()))
                }
            };
            let differ =
                |a, b| Ok::<_, String>(LLVMBuildOr(self.builder, is("lt", a, b)?, is("lt", b, a)?, c"".as_ptr()));
            Ok(match LLVMGetFCmpPredicate(at) {
                Real::LLVMRealPredicateFalse => LLVMConstInt(self.i1, 0, 0),
                Real::LLVMRealOEQ => is("eq", a, b)?,
                Real::LLVMRealOGT => is("lt", b, a)?,
                Real::LLVMRealOGE => is("le", b, a)?,
                Real::LLVMRealOLT => is("lt", a, b)?,
                Real::LLVMRealOLE => is("le", a, b)?,
                Real::LLVMRealONE => differ(a, b)?,
                Real::LLVMRealORD => ordered(a, b)?,
                Real::LLVMRealUNO => not(ordered(a, b)?),
                Real::LLVMRealUEQ => not(differ(a, b)?),
                Real::LLVMRealUGT => not(is("le", a, b)?),
                Real::LLVMRealUGE => not(is("lt", a, b)?),
                Real::LLVMRealULT => not(is("le", b, a)?),
                Real::LLVMRealULE => not(is("lt", b, a)?),
                Real::LLVMRealUNE => not(is("eq", a, b)?),
                Real::LLVMRealPredicateTrue => LLVMConstInt(self.i1, 1, 0),
            })
        }
    }

    /// # Safety
    /// As `replacement`, of a conversion from an integer.
    unsafe fn integer_to_float(&self, at: LLVMValueRef) -> Result<LLVMValueRef, String> {
        // SAFETY: it has one operand.
        unsafe {
            let value = LLVMGetOperand(at, 0);
            let float = self.float(at, LLVMTypeOf(at))?;
            let bits = self.integer_bits(at, LLVMTypeOf(value))?;
            let signed = LLVMGetInstructionOpcode(at) == Op::LLVMSIToFP;
            let wide = if bits == 64 {
                value
            } else if signed {
                LLVMBuildSExt(self.builder, value, self.i64, c"".as_ptr())
            } else {
                LLVMBuildZExt(self.builder, value, self.i64, c"".as_ptr())
            };
            // A number with fewer bits is never negative in 64 bits.
            let from = if signed || bits < 64 { "from_i64" } else { "from_u64" };
            self.apply(at, float, from, &[wide])
        }
    }

    /// # Safety
    /// As `replacement`, of a conversion to an integer.
    unsafe fn float_to_integer(&self, at: LLVMValueRef) -> Result<LLVMValueRef, String> {
        // SAFETY: it has one operand.
        unsafe {
            let value = LLVMGetOperand(at, 0);
            let float = self.float(at, LLVMTypeOf(value))?;
            let bits = self.integer_bits(at, LLVMTypeOf(at))?;
            let unsigned = LLVMGetInstructionOpcode(at) == Op::LLVMFPToUI && bits == 64;
            let to = if unsigned { "to_u64" } else { "to_i64" };
            let name = format!("ds_{}_{to}", float.name());
            let wide = self.call(at, &name, self.i64, &[self.bits(value)])?;
            Ok(if bits == 64 { wide } else { LLVMBuildTrunc(self.builder, wide, LLVMTypeOf(at), c"".as_ptr()) })
        }
    }

    /// # Safety
    /// As `replacement`, of a conversion between floating-point types.
    unsafe fn resized(&self, at: LLVMValueRef) -> Result<LLVMValueRef, String> {
        // SAFETY: it has one operand.
        unsafe {
            let value = LLVMGetOperand(at, 0);
            let (to, from) = (self.float(at, LLVMTypeOf(at))?, self.float(at, LLVMTypeOf(value))?);
            self.apply(at, to, &format!("from_{}", from.name()), &[value])
        }
    }

    /// # Safety
    /// As `replacement`, of a call.
    unsafe fn call_of(&self, at: LLVMValueRef) -> Replacement {
        // SAFETY: intrinsics have the operands that their names say; the module is verified.
        unsafe {
            if let Some(stem) = memory_intrinsic(at) {
                return self.long_copy(at, stem);
            }
            let Some(name) = callee(at).and_then(|name| name.strip_prefix("llvm.")) else { return Ok(None) };
            let operand = |index| LLVMGetOperand(at, index);
            let (stem, rest) = name.split_once('.').unwrap_or((name, ""));
            let floating = self.is_floating(LLVMTypeOf(at))
                || (LLVMGetNumOperands(at) > 1 && self.is_floating(LLVMTypeOf(operand(0))));
            if !floating || matches!(stem, "fabs" | "copysign" | "is" | "dbg" | "lifetime" | "expect" | "ssa") {
                return Ok(None);
            }
            let ty = LLVMTypeOf(operand(0));
            let float = self.float(at, ty)?;
            let one = |operation: &str| self.apply(at, float, operation, &[operand(0)]).map(Some);
            let two = |operation: &str| self.apply(at, float, operation, &[operand(0), operand(1)]);
            match stem {
                "sqrt" | "floor" | "ceil" | "trunc" => one(stem),
                "rint" | "nearbyint" | "roundeven" => one("round"),
                "round" => {
                    // Half away from zero: the greatest number below a half is added first, with the sign of x.
                    let half = if float == Float::F64 { 0.5f64.next_down() } else { f64::from(0.5f32.next_down()) };
                    let half = LLVMConstReal(ty, half);
                    let signed = self.copysign(half, operand(0), ty);
                    let sum = self.apply(at, float, "add", &[operand(0), signed])?;
                    self.apply(at, float, "trunc", &[sum]).map(Some)
                }
                "fmuladd" => {
                    let product = two("mul")?;
                    self.apply(at, float, "add", &[product, operand(2)]).map(Some)
                }
                "minimum" => two("min").map(Some),
                "maximum" => two("max").map(Some),
                // The other operand where one is NaN.
                "minnum" | "maxnum" => {
                    let a = self.number_of(at, float, operand(0), operand(1))?;
                    let b = self.number_of(at, float, operand(1), operand(0))?;
                    self.apply(at, float, &stem[..3], &[a, b]).map(Some)
                }
                "canonicalize" => self.apply(at, float, "mul", &[operand(0), LLVMConstReal(ty, 1.0)]).map(Some),
                "fptosi" | "fptoui" if rest.starts_with("sat.i64") => {
                    let to = if stem == "fptosi" { "to_i64" } else { "to_u64" };
                    let name = format!("ds_{}_{to}", float.name());
                    self.call(at, &name, self.i64, &[self.bits(operand(0))]).map(Some)
                }
                _ => Err(self.refusal(at, &format!("there is no `{stem}` of floating-point numbers"))),
            }
        }
    }

    /// `value`, but `other` where it is NaN.
    ///
    /// # Safety
    /// As `replacement`; both are of this type.
    unsafe fn number_of(
        &self,
        at: LLVMValueRef,
        float: Float,
        value: LLVMValueRef,
        other: LLVMValueRef,
    ) -> Result<LLVMValueRef, String> {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = self.bits(value);
            let number = self.call(at, &format!("ds_{}_eq", float.name()), self.i64, &[bits, bits])?;
            let number = LLVMBuildTrunc(self.builder, number, self.i1, c"".as_ptr());
            Ok(LLVMBuildSelect(self.builder, number, value, other, c"".as_ptr()))
        }
    }

    /// A copy or fill that is too long for instructions, or of a length that is not known.
    ///
    /// # Safety
    /// As `replacement`, of one of the intrinsics that copy and fill.
    unsafe fn long_copy(&self, at: LLVMValueRef, stem: &str) -> Replacement {
        // SAFETY: they have three operands and a flag.
        unsafe {
            let (to, from, len) = (LLVMGetOperand(at, 0), LLVMGetOperand(at, 1), LLVMGetOperand(at, 2));
            let constant = LLVMIsAConstantInt(len);
            if !constant.is_null() && LLVMConstIntGetZExtValue(constant) <= INLINE_LEN_MAX {
                return Ok(None);
            }
            let ty = LLVMTypeOf(len);
            let len = if LLVMGetIntTypeWidth(ty) == 64 {
                len
            } else {
                LLVMBuildIntCast2(self.builder, len, self.i64, 0, c"".as_ptr())
            };
            let from = match stem {
                "llvm.memset" => LLVMBuildZExt(self.builder, from, self.i32, c"".as_ptr()),
                _ => from,
            };
            let name = stem.replace("llvm.", "ds_");
            self.declared(at, &name, self.pointer, &[to, from, len], false).map(Some)
        }
    }

    /// A function of `diskside.h` over values of one type; the result is one again.
    ///
    /// # Safety
    /// As `replacement`; operands are floating-point numbers or integers of 64 bits.
    unsafe fn apply(
        &self,
        at: LLVMValueRef,
        float: Float,
        operation: &str,
        operands: &[LLVMValueRef],
    ) -> Result<LLVMValueRef, String> {
        // SAFETY: the caller's promise.
        unsafe {
            let operands: Vec<LLVMValueRef> = operands.iter().map(|value| self.bits(*value)).collect();
            let (bits, ty) = match float {
                Float::F32 => (self.i32, LLVMFloatTypeInContext(self.context)),
                Float::F64 => (self.i64, self.f64),
            };
            let result = self.call(at, &format!("ds_{}_{operation}", float.name()), bits, &operands)?;
            Ok(LLVMBuildBitCast(self.builder, result, ty, c"".as_ptr()))
        }
    }

    /// A call of a function that depends on its operands alone.
    ///
    /// # Safety
    /// As `replacement`.
    unsafe fn call(
        &self,
        at: LLVMValueRef,
        name: &str,
        result: LLVMTypeRef,
        operands: &[LLVMValueRef],
    ) -> Result<LLVMValueRef, String> {
        // SAFETY: the caller's promise.
        unsafe { self.declared(at, name, result, operands, true) }
    }

    /// A call of an outside function, declared when it is not yet.
    ///
    /// # Safety
    /// As `replacement`.
    unsafe fn declared(
        &self,
        at: LLVMValueRef,
        name: &str,
        result: LLVMTypeRef,
        operands: &[LLVMValueRef],
        pure: bool,
    ) -> Result<LLVMValueRef, String> {
        // SAFETY: the function's type is compared before it is called by it.
        unsafe {
            let mut types: Vec<LLVMTypeRef> = operands.iter().map(|operand| LLVMTypeOf(*operand)).collect();
            let ty = LLVMFunctionType(result, types.as_mut_ptr(), types.len() as u32, 0);
            let c_name = CString::new(name).map_err(|e| e.to_string())?;
            let mut function = LLVMGetNamedFunction(self.module, c_name.as_ptr());
            if function.is_null() {
                function = LLVMAddFunction(self.module, c_name.as_ptr(), ty);
            }
            if LLVMIsDeclaration(function) == 0 || LLVMGlobalGetValueType(function) != ty {
                return Err(self.refusal(at, &format!("`{name}` is a function of diskside.h; name yours otherwise")));
            }
            if pure {
                // No memory is read or written: the value 0 of `memory`.
                for attribute in [c"memory", c"nounwind", c"willreturn", c"speculatable"] {
                    self.add_attribute(function, attribute);
                }
            }
            let mut operands = operands.to_vec();
            Ok(LLVMBuildCall2(self.builder, ty, function, operands.as_mut_ptr(), operands.len() as u32, c"".as_ptr()))
        }
    }

    /// # Safety
    /// It is a function of the module.
    unsafe fn add_attribute(&self, function: LLVMValueRef, name: &CStr) {
        // SAFETY: an attribute of this context.
        unsafe {
            let kind = LLVMGetEnumAttributeKindForName(name.as_ptr(), name.count_bytes());
            LLVMAddAttributeAtIndex(
                function,
                LLVMAttributeFunctionIndex,
                LLVMCreateEnumAttribute(self.context, kind, 0),
            );
        }
    }

    /// # Safety
    /// Both are of this type.
    unsafe fn copysign(&self, magnitude: LLVMValueRef, sign: LLVMValueRef, ty: LLVMTypeRef) -> LLVMValueRef {
        // SAFETY: the intrinsic's operands are of the type that it is declared for.
        unsafe {
            let name = c"llvm.copysign";
            let id = LLVMLookupIntrinsicID(name.as_ptr(), name.count_bytes());
            let mut types = [ty];
            let function = LLVMGetIntrinsicDeclaration(self.module, id, types.as_mut_ptr(), 1);
            let mut operands = [magnitude, sign];
            LLVMBuildCall2(
                self.builder,
                LLVMGlobalGetValueType(function),
                function,
                operands.as_mut_ptr(),
                2,
                c"".as_ptr(),
            )
        }
    }

    /// A number as its bits; integers are that already.
    ///
    /// # Safety
    /// A value of the module.
    unsafe fn bits(&self, value: LLVMValueRef) -> LLVMValueRef {
        // SAFETY: sizes of source and result are equal.
        unsafe {
            let ty = match LLVMGetTypeKind(LLVMTypeOf(value)) {
                Kind::LLVMFloatTypeKind => self.i32,
                Kind::LLVMDoubleTypeKind => self.i64,
                _ => return value,
            };
            LLVMBuildBitCast(self.builder, value, ty, c"".as_ptr())
        }
    }

    /// # Safety
    /// It is a type.
    unsafe fn is_floating(&self, ty: LLVMTypeRef) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match LLVMGetTypeKind(ty) {
                Kind::LLVMHalfTypeKind
                | Kind::LLVMBFloatTypeKind
                | Kind::LLVMFloatTypeKind
                | Kind::LLVMDoubleTypeKind
                | Kind::LLVMX86_FP80TypeKind
                | Kind::LLVMFP128TypeKind
                | Kind::LLVMPPC_FP128TypeKind => true,
                Kind::LLVMVectorTypeKind => self.is_floating(LLVMGetElementType(ty)),
                _ => false,
            }
        }
    }

    /// # Safety
    /// It is a type.
    unsafe fn float(&self, at: LLVMValueRef, ty: LLVMTypeRef) -> Result<Float, String> {
        // SAFETY: the caller's promise.
        match unsafe { LLVMGetTypeKind(ty) } {
            Kind::LLVMFloatTypeKind => Ok(Float::F32),
            Kind::LLVMDoubleTypeKind => Ok(Float::F64),
            Kind::LLVMVectorTypeKind => Err(self.refusal(at, "vectors are not for functions: write a loop")),
            _ => Err(self.refusal(at, "of floating-point types there are float and double")),
        }
    }

    /// The width of an integer that converts.
    ///
    /// # Safety
    /// It is a type.
    unsafe fn integer_bits(&self, at: LLVMValueRef, ty: LLVMTypeRef) -> Result<u32, String> {
        // SAFETY: the width is asked of integers alone.
        unsafe {
            match LLVMGetTypeKind(ty) {
                Kind::LLVMIntegerTypeKind if LLVMGetIntTypeWidth(ty) <= 64 => Ok(LLVMGetIntTypeWidth(ty)),
                Kind::LLVMVectorTypeKind => Err(self.refusal(at, "vectors are not for functions: write a loop")),
                _ => Err(self.refusal(at, "integers of more than 64 bits do not become floating-point numbers")),
            }
        }
    }

    /// An error at an instruction, as clang would print it.
    fn refusal(&self, at: LLVMValueRef, what: &str) -> String {
        // SAFETY: an instruction; a file name has the length that is given, or is null.
        unsafe {
            let mut len = 0;
            let file = LLVMGetDebugLocFilename(at, &mut len);
            if file.is_null() {
                return format!("error: {what}\n");
            }
            let file = String::from_utf8_lossy(std::slice::from_raw_parts(file.cast(), len as usize)).into_owned();
            format!("{file}:{}:{}: error: {what}\n", LLVMGetDebugLocLine(at), LLVMGetDebugLocColumn(at))
        }
    }
}

"""Mnemonics of x86-64 in AT&T syntax, by the feature that their VEX or legacy form requires.

A list has every mnemonic of LLVM that GNU as accepts with only that feature and the baseline; ``base`` is the
baseline, ``avx2`` includes AVX. Other mnemonics require other features.
"""

from __future__ import annotations

MNEMONICS: dict[str, str] = {
    "base": """
        adc adcb adcl adcq adcw add addb addl addpd addps addq addr32 addsd addss addw and andb andl
        andnpd andnps andpd andps andq andw bsf bsfl bsfq bsfw bsr bsrl bsrq bsrw bswap bswapl bswapq bt
        btc btcl btcq btcw btl btq btr btrl btrq btrw bts btsl btsq btsw btw call callq callw cbtw cbw
        cdq cdqe clc cld clflush cli clr clrb clrl clrq clrw cltd cltq clts cmc cmova cmovae cmovael
        cmovaeq cmovaew cmoval cmovaq cmovaw cmovb cmovbe cmovbel cmovbeq cmovbew cmovbl cmovbq cmovbw
        cmove cmovel cmoveq cmovew cmovg cmovge cmovgel cmovgeq cmovgew cmovgl cmovgq cmovgw cmovl
        cmovle cmovlel cmovleq cmovlew cmovll cmovlq cmovlw cmovne cmovnel cmovneq cmovnew cmovno
        cmovnol cmovnoq cmovnow cmovnp cmovnpl cmovnpq cmovnpw cmovns cmovnsl cmovnsq cmovnsw cmovo
        cmovol cmovoq cmovow cmovp cmovpl cmovpq cmovpw cmovs cmovsl cmovsq cmovsw cmp cmpb cmpl cmppd
        cmpps cmpq cmps cmpsb cmpsd cmpsl cmpsq cmpss cmpsw cmpw cmpxchg cmpxchg8b cmpxchgb cmpxchgl
        cmpxchgq cmpxchgw comisd comiss cpuid cqo cqto cs cvtdq2pd cvtdq2ps cvtpd2dq cvtpd2ps cvtpi2pd
        cvtpi2ps cvtps2dq cvtps2pd cvtsd2si cvtsd2sil cvtsd2siq cvtsd2ss cvtsi2sd cvtsi2sdl cvtsi2sdq
        cvtsi2ss cvtsi2ssl cvtsi2ssq cvtss2sd cvtss2si cvtss2sil cvtss2siq cvttpd2dq cvttps2dq cvttsd2si
        cvttsd2sil cvttsd2siq cvttss2si cvttss2sil cvttss2siq cwd cwde cwtd cwtl data16 dec decb decl
        decq decw div divb divl divpd divps divq divsd divss divw ds emms f2xm1 fabs fadd faddl faddp
        fadds fbld fbstp fchs fclex fcom fcomi fcoml fcomp fcompi fcompl fcompp fcomps fcoms fcos
        fdecstp fdiv fdivl fdivp fdivr fdivrl fdivrp fdivrs fdivs fiadd fiaddl fiadds ficom ficoml
        ficomp ficompl ficomps ficoms fidiv fidivl fidivr fidivrl fidivrs fidivs fild fildl fildll filds
        fimul fimull fimuls fincstp finit fist fistl fistp fistpl fistpll fistps fists fisub fisubl
        fisubr fisubrl fisubrs fisubs fld fld1 fldcw fldenv fldl fldl2e fldl2t fldlg2 fldln2 fldpi flds
        fldt fldz fmul fmull fmulp fmuls fnclex fninit fnop fnsave fnstcw fnstenv fnstsw fpatan fprem
        fprem1 fptan frndint frstor fs fsave fscale fsin fsincos fsqrt fst fstcw fstcww fstenv fstl fstp
        fstpl fstps fstpt fsts fstsw fstsww fsub fsubl fsubp fsubr fsubrl fsubrp fsubrs fsubs ftst fucom
        fucomi fucomp fucompi fucompp fxam fxch fxrstor fxrstor64 fxsave fxsave64 fxtract fyl2x fyl2xp1
        gs hlt ht idiv idivb idivl idivq idivw imul imulb imull imulq imulw in inb inc incb incl incq
        incw inl ins insb insl insw int int3 invd invlpg inw iret iretl iretq iretw ja jae jb jbe jc je
        jecxz jg jge jl jle jmp jmpq jmpw jnc jne jno jnp jns jnz jo jp jrcxz js jz lahf lar larl larq
        larw lcall lcalll lcallw ldmxcsr lea leal leaq leave leaw lfence lfs lfsl lfsw lgdt lgdtq lgs
        lgsl lgsw lidt lidtq ljmp ljmpl ljmpw lldt lldtw lmsw lmsww lock lods lodsb lodsl lodsq lodsw
        loop loope loopne lretl lretq lretw lsl lsll lslq lslw lss lssl lssw ltr ltrw maskmovdqu maxpd
        maxps maxsd maxss mfence minpd minps minsd minss mov movabs movabsq movapd movaps movb movd
        movdqa movdqu movhlps movhpd movhps movl movlhps movlpd movlps movmskpd movmskps movntdq movnti
        movntil movntiq movntpd movntps movq movs movsb movsbl movsbq movsbw movsd movsl movslq movsq
        movss movsw movswl movswq movsx movsxd movupd movups movw movzbl movzbq movzbw movzwl movzwq
        movzx mul mulb mull mulpd mulps mulq mulsd mulss mulw neg negb negl negq negw nop nopl nopq nopw
        not notb notl notq notw or orb orl orpd orps orq orw out outb outl outs outsb outsl outsw outw
        packssdw packsswb packuswb paddb paddd paddq paddsb paddsw paddusb paddusw paddw pand pandn
        pause pavgb pavgw pcmpeqb pcmpeqd pcmpeqw pcmpgtb pcmpgtd pcmpgtw pinsrw pmaddwd pmaxsw pmaxub
        pminsw pminub pmovmskb pmulhuw pmulhw pmullw pmuludq pop popf popfq popfw popq popw por
        prefetchnta prefetcht0 prefetcht1 prefetcht2 psadbw pshufd pshufhw pshuflw pslld pslldq psllq
        psllw psrad psraw psrld psrldq psrlq psrlw psubb psubd psubq psubsb psubsw psubusb psubusw psubw
        punpckhbw punpckhdq punpckhqdq punpckhwd punpcklbw punpckldq punpcklqdq punpcklwd push pushf
        pushfq pushfw pushq pushw pxor rcl rclb rcll rclq rclw rcpps rcpss rcr rcrb rcrl rcrq rcrw rdmsr
        rdpmc rdtsc rep repne repnz ret retf retfq retq retw rex64 rol rolb roll rolq rolw ror rorb rorl
        rorq rorw rsm rsqrtps rsqrtss sahf sal sar sarb sarl sarq sarw sbb sbbb sbbl sbbq sbbw scas
        scasb scasl scasq scasw seta setae setb setbe setc sete setg setge setl setle setnb setne setno
        setnp setns seto setp sets setz sfence sgdt sgdtq shl shlb shld shldl shldq shldw shll shlq shlw
        shr shrb shrd shrdl shrdq shrdw shrl shrq shrw shufpd shufps sidt sidtq sldt sldtl sldtq sldtw
        smov smovb smovl smovq smovw smsw smswl smswq smsww sqrtpd sqrtps sqrtsd sqrtss stc std sti
        stmxcsr stos stosb stosl stosq stosw str strl strq strw sub subb subl subpd subps subq subsd
        subss subw swapgs syscall sysenter sysexit sysexitl sysexitq sysret sysretl sysretq test testb
        testl testq testw ucomisd ucomiss ud1 ud1l ud1q ud1w ud2 unpckhpd unpckhps unpcklpd unpcklps
        wait wbinvd word wrmsr xadd xaddb xaddl xaddq xaddw xchg xchgb xchgl xchgq xchgw xlatb xor xorb
        xorl xorpd xorps xorq xorw
    """,
    "sse3": """
        addsubpd addsubps haddpd haddps hsubpd hsubps lddqu monitor movddup movshdup movsldup mwait
    """,
    "ssse3": """
        pabsb pabsd pabsw palignr phaddd phaddsw phaddw phsubd phsubsw phsubw pmaddubsw pmulhrsw pshufb
        psignb psignd psignw
    """,
    "sse4.1": """
        blendpd blendps blendvpd blendvps dppd dpps extractps insertps movntdqa mpsadbw packusdw
        pblendvb pblendw pcmpeqq pextrb pextrd pextrq pextrw phminposuw pinsrb pinsrd pinsrq pmaxsb
        pmaxsd pmaxud pmaxuw pminsb pminsd pminud pminuw pmovsxbd pmovsxbq pmovsxbw pmovsxdq pmovsxwd
        pmovsxwq pmovzxbd pmovzxbq pmovzxbw pmovzxdq pmovzxwd pmovzxwq pmuldq pmulld ptest roundpd
        roundps roundsd roundss
    """,
    "sse4.2": "pcmpestri pcmpestrm pcmpgtq pcmpistri pcmpistrm",
    "popcnt": "popcnt popcntl popcntq popcntw",
    "lzcnt": "lzcnt lzcntl lzcntq lzcntw",
    "bmi": """
        andn andnl andnq bextr bextrl bextrq blsi blsil blsiq blsmsk blsmskl blsmskq blsr blsrl blsrq
        tzcnt tzcntl tzcntq tzcntw
    """,
    "bmi2": """
        bzhi bzhil bzhiq mulx mulxl mulxq pdep pdepl pdepq pext pextl pextq rorx rorxl rorxq sarx sarxl
        sarxq shlx shlxl shlxq shrx shrxl shrxq
    """,
    "movbe": "movbe movbel movbeq movbew",
    "cx16": "cmpxchg16b",
    "avx2": """
        vaddpd vaddps vaddsd vaddss vaddsubpd vaddsubps vandnpd vandnps vandpd vandps vblendpd vblendps
        vblendvpd vblendvps vbroadcastf128 vbroadcasti128 vbroadcastsd vbroadcastss vcmpgtsd vcmppd
        vcmpps vcmpsd vcmpss vcomisd vcomiss vcvtdq2pd vcvtdq2ps vcvtpd2dq vcvtpd2dqx vcvtpd2dqy
        vcvtpd2ps vcvtpd2psx vcvtpd2psy vcvtps2dq vcvtps2pd vcvtsd2si vcvtsd2sil vcvtsd2siq vcvtsd2ss
        vcvtsi2sd vcvtsi2sdl vcvtsi2sdq vcvtsi2ss vcvtsi2ssl vcvtsi2ssq vcvtss2sd vcvtss2si vcvtss2sil
        vcvtss2siq vcvttpd2dq vcvttpd2dqx vcvttpd2dqy vcvttps2dq vcvttsd2si vcvttsd2sil vcvttsd2siq
        vcvttss2si vcvttss2sil vcvttss2siq vdivpd vdivps vdivsd vdivss vdppd vdpps vextractf128
        vextracti128 vextractps vgatherdpd vgatherdps vgatherqpd vgatherqps vhaddpd vhaddps vhsubpd
        vhsubps vinsertf128 vinserti128 vinsertps vlddqu vmaskmovdqu vmaskmovpd vmaskmovps vmaxpd vmaxps
        vmaxsd vmaxss vminpd vminps vminsd vminss vmovapd vmovaps vmovd vmovddup vmovdqa vmovdqu
        vmovhlps vmovhpd vmovhps vmovlhps vmovlpd vmovlps vmovmskpd vmovmskps vmovntdq vmovntdqa
        vmovntpd vmovntps vmovq vmovsd vmovshdup vmovsldup vmovss vmovupd vmovups vmpsadbw vmulpd vmulps
        vmulsd vmulss vorpd vorps vpabsb vpabsd vpabsw vpackssdw vpacksswb vpackusdw vpackuswb vpaddb
        vpaddd vpaddq vpaddsb vpaddsw vpaddusb vpaddusw vpaddw vpalignr vpand vpandn vpavgb vpavgw
        vpblendd vpblendvb vpblendw vpbroadcastb vpbroadcastd vpbroadcastq vpbroadcastw vpcmpeqb
        vpcmpeqd vpcmpeqq vpcmpeqw vpcmpestri vpcmpestrm vpcmpgtb vpcmpgtd vpcmpgtq vpcmpgtw vpcmpistri
        vpcmpistrm vperm2f128 vperm2i128 vpermd vpermilpd vpermilps vpermpd vpermps vpermq vpextrb
        vpextrd vpextrq vpextrw vpgatherdd vpgatherdq vpgatherqd vpgatherqq vphaddd vphaddsw vphaddw
        vphminposuw vphsubd vphsubsw vphsubw vpinsrb vpinsrd vpinsrq vpinsrw vpmaddubsw vpmaddwd
        vpmaskmovd vpmaskmovq vpmaxsb vpmaxsd vpmaxsw vpmaxub vpmaxud vpmaxuw vpminsb vpminsd vpminsw
        vpminub vpminud vpminuw vpmovmskb vpmovsxbd vpmovsxbq vpmovsxbw vpmovsxdq vpmovsxwd vpmovsxwq
        vpmovzxbd vpmovzxbq vpmovzxbw vpmovzxdq vpmovzxwd vpmovzxwq vpmuldq vpmulhrsw vpmulhuw vpmulhw
        vpmulld vpmullw vpmuludq vpor vpsadbw vpshufb vpshufd vpshufhw vpshuflw vpsignb vpsignd vpsignw
        vpslld vpslldq vpsllq vpsllvd vpsllvq vpsllw vpsrad vpsravd vpsraw vpsrld vpsrldq vpsrlq vpsrlvd
        vpsrlvq vpsrlw vpsubb vpsubd vpsubq vpsubsb vpsubsw vpsubusb vpsubusw vpsubw vptest vpunpckhbw
        vpunpckhdq vpunpckhqdq vpunpckhwd vpunpcklbw vpunpckldq vpunpcklqdq vpunpcklwd vpxor vrcpps
        vrcpss vroundpd vroundps vroundsd vroundss vrsqrtps vrsqrtss vshufpd vshufps vsqrtpd vsqrtps
        vsqrtsd vsqrtss vsubpd vsubps vsubsd vsubss vtestpd vtestps vucomisd vucomiss vunpckhpd
        vunpckhps vunpcklpd vunpcklps vxorpd vxorps vzeroall vzeroupper
    """,
    "f16c": "vcvtph2ps vcvtps2ph",
    "fma": """
        vfmadd132pd vfmadd132ps vfmadd132sd vfmadd132ss vfmadd213pd vfmadd213ps vfmadd213sd vfmadd213ss
        vfmadd231pd vfmadd231ps vfmadd231sd vfmadd231ss vfmaddsub132pd vfmaddsub132ps vfmaddsub213pd
        vfmaddsub213ps vfmaddsub231pd vfmaddsub231ps vfmsub132pd vfmsub132ps vfmsub132sd vfmsub132ss
        vfmsub213pd vfmsub213ps vfmsub213sd vfmsub213ss vfmsub231pd vfmsub231ps vfmsub231sd vfmsub231ss
        vfmsubadd132pd vfmsubadd132ps vfmsubadd213pd vfmsubadd213ps vfmsubadd231pd vfmsubadd231ps
        vfnmadd132pd vfnmadd132ps vfnmadd132sd vfnmadd132ss vfnmadd213pd vfnmadd213ps vfnmadd213sd
        vfnmadd213ss vfnmadd231pd vfnmadd231ps vfnmadd231sd vfnmadd231ss vfnmsub132pd vfnmsub132ps
        vfnmsub132sd vfnmsub132ss vfnmsub213pd vfnmsub213ps vfnmsub213sd vfnmsub213ss vfnmsub231pd
        vfnmsub231ps vfnmsub231sd vfnmsub231ss
    """,
    "avx512": """
        kaddb kaddd kaddq kaddw kandb kandd kandnb kandnd kandnq kandnw kandq kandw kmovb kmovd kmovq
        kmovw knotb knotd knotq knotw korb kord korq kortestb kortestd kortestq kortestw korw kshiftlb
        kshiftld kshiftlq kshiftlw kshiftrb kshiftrd kshiftrq kshiftrw ktestb ktestd ktestq ktestw
        kunpckbw kunpckdq kunpckwd kxnorb kxnord kxnorq kxnorw kxorb kxord kxorq kxorw valignd valignq
        vblendmpd vblendmps vbroadcastf32x2 vbroadcastf32x4 vbroadcastf32x8 vbroadcastf64x2
        vbroadcastf64x4 vbroadcasti32x2 vbroadcasti32x4 vbroadcasti32x8 vbroadcasti64x2 vbroadcasti64x4
        vcompresspd vcompressps vcvtpd2qq vcvtpd2udq vcvtpd2udqx vcvtpd2udqy vcvtpd2uqq vcvtps2qq
        vcvtps2udq vcvtps2uqq vcvtqq2pd vcvtqq2ps vcvtqq2psx vcvtqq2psy vcvtsd2usi vcvtss2usi vcvttpd2qq
        vcvttpd2udq vcvttpd2udqx vcvttpd2udqy vcvttpd2uqq vcvttps2qq vcvttps2udq vcvttps2uqq vcvttsd2usi
        vcvttss2usi vcvtudq2pd vcvtudq2ps vcvtuqq2pd vcvtuqq2ps vcvtuqq2psx vcvtuqq2psy vcvtusi2sd
        vcvtusi2sdl vcvtusi2sdq vcvtusi2ss vcvtusi2ssl vcvtusi2ssq vdbpsadbw vexpandpd vexpandps
        vextractf32x4 vextractf32x8 vextractf64x2 vextractf64x4 vextracti32x4 vextracti32x8
        vextracti64x2 vextracti64x4 vfixupimmpd vfixupimmps vfixupimmsd vfixupimmss vfpclasspd
        vfpclasspdx vfpclasspdy vfpclasspdz vfpclassps vfpclasspsx vfpclasspsy vfpclasspsz vfpclasssd
        vfpclassss vgetexppd vgetexpps vgetexpsd vgetexpss vgetmantpd vgetmantps vgetmantsd vgetmantss
        vinsertf32x4 vinsertf32x8 vinsertf64x2 vinsertf64x4 vinserti32x4 vinserti32x8 vinserti64x2
        vinserti64x4 vmovdqa32 vmovdqa64 vmovdqu16 vmovdqu32 vmovdqu64 vmovdqu8 vpabsq vpandd vpandnd
        vpandnq vpandq vpblendmb vpblendmd vpblendmq vpblendmw vpbroadcastmb2q vpbroadcastmw2d vpcmpb
        vpcmpd vpcmpq vpcmpub vpcmpud vpcmpuq vpcmpuw vpcmpw vpcompressd vpcompressq vpconflictd
        vpconflictq vpermi2d vpermi2pd vpermi2ps vpermi2q vpermi2w vpermt2d vpermt2pd vpermt2ps vpermt2q
        vpermt2w vpermw vpexpandd vpexpandq vplzcntd vplzcntq vpmaxsq vpmaxuq vpminsq vpminuq vpmovb2m
        vpmovd2m vpmovdb vpmovdw vpmovm2b vpmovm2d vpmovm2q vpmovm2w vpmovq2m vpmovqb vpmovqd vpmovqw
        vpmovsdb vpmovsdw vpmovsqb vpmovsqd vpmovsqw vpmovswb vpmovusdb vpmovusdw vpmovusqb vpmovusqd
        vpmovusqw vpmovuswb vpmovw2m vpmovwb vpmullq vpord vporq vprold vprolq vprolvd vprolvq vprord
        vprorq vprorvd vprorvq vpsllvw vpsraq vpsravq vpsravw vpsrlvw vpternlogd vpternlogq vptestmb
        vptestmd vptestmq vptestmw vptestnmb vptestnmd vptestnmq vptestnmw vpxord vpxorq vrangepd
        vrangeps vrangesd vrangess vrcp14pd vrcp14ps vrcp14sd vrcp14ss vreducepd vreduceps vreducesd
        vreducess vrndscalepd vrndscaleps vrndscalesd vrndscaless vrsqrt14pd vrsqrt14ps vrsqrt14sd
        vrsqrt14ss vscalefpd vscalefps vscalefsd vscalefss vshuff32x4 vshuff64x2 vshufi32x4 vshufi64x2
    """,
    "amx-bf16": "tdpbf16ps",
    "amx-tile": "ldtilecfg sttilecfg tileloadd tileloaddt1 tilerelease tilestored tilezero",
    "avx512bf16": "vcvtne2ps2bf16 vcvtneps2bf16 vcvtneps2bf16x vcvtneps2bf16y vdpbf16ps",
    "avx512bitalg": "vpopcntb vpopcntw vpshufbitqmb",
    "avx512fp16": """
        vaddph vaddsh vcmpgtsh vcmpph vcmpsh vcomish vcvtdq2ph vcvtdq2phx vcvtdq2phy vcvtpd2ph
        vcvtpd2phx vcvtpd2phy vcvtpd2phz vcvtph2dq vcvtph2pd vcvtph2psx vcvtph2qq vcvtph2udq vcvtph2uqq
        vcvtph2uw vcvtph2w vcvtps2phx vcvtps2phxx vcvtps2phxy vcvtqq2ph vcvtqq2phx vcvtqq2phy vcvtqq2phz
        vcvtsd2sh vcvtsh2sd vcvtsh2si vcvtsh2ss vcvtsh2usi vcvtsi2sh vcvtsi2shl vcvtsi2shq vcvtss2sh
        vcvttph2dq vcvttph2qq vcvttph2udq vcvttph2uqq vcvttph2uw vcvttph2w vcvttsh2si vcvttsh2usi
        vcvtudq2ph vcvtudq2phx vcvtudq2phy vcvtuqq2ph vcvtuqq2phx vcvtuqq2phy vcvtuqq2phz vcvtusi2sh
        vcvtusi2shl vcvtusi2shq vcvtuw2ph vcvtw2ph vdivph vdivsh vfcmaddcph vfcmaddcsh vfcmulcph
        vfcmulcsh vfmadd132ph vfmadd132sh vfmadd213ph vfmadd213sh vfmadd231ph vfmadd231sh vfmaddcph
        vfmaddcsh vfmaddsub132ph vfmaddsub213ph vfmaddsub231ph vfmsub132ph vfmsub132sh vfmsub213ph
        vfmsub213sh vfmsub231ph vfmsub231sh vfmsubadd132ph vfmsubadd213ph vfmsubadd231ph vfmulcph
        vfmulcsh vfnmadd132ph vfnmadd132sh vfnmadd213ph vfnmadd213sh vfnmadd231ph vfnmadd231sh
        vfnmsub132ph vfnmsub132sh vfnmsub213ph vfnmsub213sh vfnmsub231ph vfnmsub231sh vfpclassph
        vfpclassphx vfpclassphy vfpclassphz vfpclasssh vgetexpph vgetexpsh vgetmantph vgetmantsh vmaxph
        vmaxsh vminph vminsh vmovsh vmovw vmulph vmulsh vrcpph vrcpsh vreduceph vreducesh vrndscaleph
        vrndscalesh vrsqrtph vrsqrtsh vscalefph vscalefsh vsqrtph vsqrtsh vsubph vsubsh vucomish
    """,
    "avx512ifma": "vpmadd52huq vpmadd52luq",
    "avx512vbmi": "vpermb vpermi2b vpermt2b vpmultishiftqb",
    "avx512vbmi2": """
        vpcompressb vpcompressw vpexpandb vpexpandw vpshldd vpshldq vpshldvd vpshldvq vpshldvw vpshldw
        vpshrdd vpshrdq vpshrdvd vpshrdvq vpshrdvw vpshrdw
    """,
    "avx512vnni": "vpdpbusd vpdpbusds vpdpwssd vpdpwssds",
    "avx512vpopcntdq": "vpopcntd vpopcntq",
}

#: Mnemonics of Armv8.0-A with floating point and NEON; on half precision, many require more (``isa.py``).
AARCH64_BASELINE = """
        adc adcs add addhn addhn2 addp adds addv adr adrp and ands asr asrv b bfi bfxil bic bics bif bit bl
        blr br brk bsl cbnz cbz ccmn ccmp cinc cinv cls clz cmeq cmge cmgt cmhi cmhs cmle cmlo cmls cmlt cmn
        cmp cmtst cneg cnt csel cset csetm csinc csinv csneg dmb dup eon eor ext extr fabd fabs facge facgt
        fadd faddp fccmp fcmeq fcmge fcmgt fcmle fcmlt fcmp fcsel fcvt fcvtas fcvtau fcvtl fcvtl2 fcvtms
        fcvtmu fcvtn fcvtn2 fcvtns fcvtnu fcvtps fcvtpu fcvtxn fcvtxn2 fcvtzs fcvtzu fdiv fmadd fmax fmaxnm
        fmaxnmp fmaxnmv fmaxp fmaxv fmin fminnm fminnmp fminnmv fminp fminv fmla fmls fmov fmsub fmul fmulx
        fneg fnmadd fnmsub fnmul frecpe frecps frecpx frinta frinti frintm frintn frintp frintx frintz
        frsqrte frsqrts fsqrt fsub ins isb ld1 ld1r ld2 ld2r ld3 ld3r ld4 ld4r ldar ldarb ldarh ldaxr ldaxrb
        ldaxrh ldp ldpsw ldr ldrb ldrh ldrsb ldrsh ldrsw ldur ldurb ldurh ldursb ldursh ldursw ldxr ldxrb
        ldxrh lsl lslv lsr lsrv madd mla mls mneg mov movi movk movn movz mrs msr msub mul mvn mvni neg negs
        ngc ngcs nop not orn orr pmul prfm rbit ret rev rev16 rev32 rev64 ror rorv rshrn rshrn2 saba sabal
        sabal2 sabd sabdl sabdl2 sadalp saddl saddl2 saddlp saddlv saddw saddw2 sbc sbcs sbfiz sbfx scvtf
        sdiv shadd shl shll shll2 shrn shrn2 shsub sli smaddl smax smaxp smaxv smin sminp sminv smlal smlal2
        smlsl smlsl2 smov smsubl smulh smull smull2 sqabs sqadd sqneg sqshl sqsub sqxtn sqxtn2 sqxtun
        sqxtun2 srhadd sri srshl srshr srsra sshl sshll sshll2 sshr ssra ssubl ssubl2 ssubw ssubw2 st1 st2
        st3 st4 stlr stlrb stlrh stlxr stlxrb stlxrh stp str strb strh stur sturb sturh stxr stxrb stxrh sub
        subhn subhn2 subs suqadd sxtb sxth sxtl sxtl2 sxtw tbl tbnz tbx tbz trn1 trn2 tst uaba uabal uabal2
        uabd uabdl uabdl2 uadalp uaddl uaddl2 uaddlp uaddlv uaddw uaddw2 ubfiz ubfx ucvtf udiv uhadd uhsub
        umaddl umax umaxp umaxv umin uminp uminv umlal umlal2 umlsl umlsl2 umov umsubl umulh umull umull2
        uqadd uqsub uqxtn uqxtn2 urhadd urshl urshr ursra ushl ushll ushll2 ushr usqadd usra usubl usubl2
        usubw usubw2 uxtb uxth uxtl uxtl2 uxtw uzp1 uzp2 xtn xtn2 yield zip1 zip2
"""

@section('body')
<p>half a section
@php throw new DomainException('in a view'); @endphp
@endsection

set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'bytes.svg'
set title 'What all ranks send in a step at 100mbit, by class, MB (measured; mean over the run, first epoch included)'
set xlabel 'boundaries'
set ylabel ''
set grid
set key outside right top Left reverse samplen 3
set style data histograms
set style histogram rowstacked
set style fill solid 0.9
set boxwidth 0.75
set xtics ('fp32' 0, 'fp16' 1, 'DirectQ, 3 and 6 bits' 2, 'DirectQ, 4 and 8 bits' 3, 'AC-SGD, 2 and 4 bits' 4, 'AC-SGD, 3 and 6 bits' 5, 'AC-SGD, 4 and 8 bits' 6, 'ac-sgd' 7, 'rotated' 8) rotate by -35
set yrange [0:*]
plot 'bytes.dat' index 0 using 2 linecolor rgb '#D55E00' title 'pp.activation', \
  'bytes.dat' index 1 using 2 linecolor rgb '#0072B2' title 'pp.gradient', \
  'bytes.dat' index 2 using 2 linecolor rgb '#009E73' title 'embedding.tied'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'bytes.png'
replot
